"""`gc`: gradient coding, one code per job; the round ends when the answers decode (Tandon et al. 2017).

An (n, s) code lets any s workers straggle, at load (s+1)/n (cyclic, dft) or 1/(n // (s+1)) (fractional). Delay 0: it
serves a single model too. The fractional code also decodes from every larger set of stragglers that spares a member of
each group, so its earliest decode usually comes long before the n - s-th answer.

By hand, n = 4, s = 1, fractional: two groups, drawn anew for each job, say {0, 2} and {1, 3}; 0 and 2 both compute g_0
over the first half of the batch, 1 and 3 both g_1. Workers 0 and 3 straggle: g = g_0 (of 2) + g_1 (of 1).
Read next: `selective_repeat.py`.
"""

from __future__ import annotations

from gradmux.orchestrator.schemes.codes import CODES, make_code
from gradmux.orchestrator.schemes.constraints import require_tolerance
from gradmux.orchestrator.schemes.facts import CodedFacts
from gradmux.orchestrator.schemes.scheme import Context, Parameter, Params, Sample, Scheme, SchemeInfo, StragglerModel
from gradmux.orchestrator.schemes.stragglers import Covered, PerRound, choose_model
from gradmux.orchestrator.schemes.synchronous import OneRoundScheme


class GradientCoding(OneRoundScheme):
    """One (n, s) codeword per round."""

    def straggler_model(self, name: str) -> StragglerModel:
        """s per round; "either" admits every set without which the round decodes (fractional: more than s)."""
        per_round = PerRound(self.code.tolerance)
        if name == "either":
            return Covered(self.decodes_from)
        return choose_model(self.name, name, per_round, per_round)


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when s does not fit n, or the code does not exist for them."""
    stragglers, kind = int(params["stragglers"]), str(params["code"])
    require_tolerance("gc", stragglers, context.workers)
    return GradientCoding("gc", make_code(kind, context.workers, stragglers, context.seed), context)


INFO = SchemeInfo(
    name="gc",
    title="Gradient coding: each chunk at s + 1 workers",
    build=build,
    parameters=(
        Parameter("stragglers", "s", int, None, "stragglers that every round tolerates"),
        Parameter("code", "code", str, "fractional", "how chunks are spread over workers", CODES),
    ),
    constraints="0 <= s < n",
    load="fractional: 1/(n // (s+1)); cyclic, dft: (s+1)/n",
    delay="0",
    tolerates="any s per round; fractional: every set that contains no whole group",
    costs="s + 1 times the work of uncoded",
    avoid="when compute time dominates: the load grows with s in every round, stragglers or not",
    source="Tandon, Lei, Dimakis, Karampatziakis 2017 (arXiv 1612.03301)",
    example="n = 4, s = 1, groups {0, 2} and {1, 3}: workers 0 and 3 straggle, g = y_2 + y_1.",
    sample=Sample(4, {"s": 1}, late={0: (0, 3), 1: (1,)}),
    facts=CodedFacts(),
)
