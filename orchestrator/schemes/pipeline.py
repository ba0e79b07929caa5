"""`pipeline`: pipelined gradient coding, ours. Rounds overlap: each job goes out as soon as its model is ready.

The round-synchronous schemes make every job use all workers, one round after the other. Here a fractional (n, s) code
with n well below the concurrency C serves one job; while M models take turns, several jobs are in flight at once. Job t
is dispatched when its model is ready (job t-M decoded) and n invocations fit under C, the model that lags most first.
It decodes at its earliest decodable instant; answers that come later only cost money. No round waits for a straggler,
nothing is repeated, and the delay is at most M - 1 by itself. Groups are drawn anew for each job.

The loop knows such a scheme by `overlapping`; nothing here differs from `gc` but that jobs end in any order.

By hand, M = 2, C = 7, n = 3, s = 2: one group, the first answer decodes. Jobs 0 and 1 go out at 0 s to 3 workers each.
A worker of job 0 answers at 1 s: model 0 steps, but 5 are still in flight and job 2 needs 3. The second worker of job 0
answers at 1.2 s: 4 + 3 = 7, so job 2 goes out, although job 1 is not done and job 0's third worker has not answered.
Read next: `pipeline_auto.py`, which chooses n and s itself.
"""

from __future__ import annotations

from dataclasses import replace

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.constraints import require_tolerance
from gradmux.orchestrator.schemes.facts import CodedFacts
from gradmux.orchestrator.schemes.overlapping import OverlappingScheme
from gradmux.orchestrator.schemes.scheme import Context, Parameter, Params, Sample, Scheme, SchemeInfo, StragglerModel
from gradmux.orchestrator.schemes.stragglers import Covered, PerRound, choose_model
from gradmux.orchestrator.schemes.synchronous import CodedJob, OneRoundScheme


class Pipeline(OverlappingScheme[CodedJob], OneRoundScheme):
    """Round t is job t, under its own codeword."""

    def wanted(self, t: int) -> tuple[int, ...]:
        """One worker of each group of job t that no worker has answered for."""
        reception = self._active[t].reception
        return tuple(reception.helpful()[: reception.needed])

    def straggler_model(self, name: str) -> StragglerModel:
        """s per round; "either" admits every set that contains no whole group."""
        if name == "either":
            return Covered(self.decodes_from)
        per_round = PerRound(self.code.tolerance)
        return choose_model(self.name, name, per_round, per_round)


class PipelineFacts(CodedFacts):
    """As `gc`, but for the rounds, which overlap."""

    overlapping = True


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when s does not fit n."""
    workers, stragglers = int(params["per_job"]), int(params["stragglers"])
    if workers < 1:
        raise ConfigError(f"pipeline: n (per_job) = {workers}: at least 1 worker is needed for each job")
    require_tolerance("pipeline", stragglers, workers)
    code = FractionalCode(workers, stragglers, context.seed)
    return Pipeline("pipeline", code, replace(context, workers=workers))


INFO = SchemeInfo(
    name="pipeline",
    title="Pipelined gradient coding: rounds overlap, each job to a few workers as soon as its model is ready",
    build=build,
    parameters=(
        Parameter("per_job", "n", int, None, "workers of one job, well below the concurrency limit C"),
        Parameter("stragglers", "s", int, None, "stragglers that every job tolerates"),
    ),
    constraints="0 <= s < n <= C",
    load="1/(n // (s+1))",
    delay="0 (jobs of other models overlap: nothing waits)",
    tolerates="any s per job; every set that contains no whole group",
    costs="s + 1 times the work of uncoded on n workers; late answers hold their place under C until they come",
    avoid="with one model and n near C (then it is gc), or when good n and s are not known (pipeline-auto finds them)",
    source="ours; fractional repetition of Tandon et al. 2017 (arXiv 1612.03301)",
    example=(
        "M = 2, C = 7, n = 3, s = 2: jobs 0 and 1 start at 0 s. Job 0 decodes with its first answer at 1 s; job 2 "
        "starts with its second at 1.2 s, since 4 are in flight then; job 1 goes on meanwhile."
    ),
    sample=Sample(3, {"n": 3, "s": 2}, late={0: (1, 2)}, models=2, concurrency=7),
    facts=PipelineFacts(),
)
