"""`grouping`: G groups of workers that all compute the same G-th of the batch; the first answer of each group counts.

The lazy schemes' groups without their laziness: it is `gc` over the fractional code, by the number of groups instead of
the number of stragglers. Sizes differ by at most one, members are drawn anew for each job. Load 1/G, delay 0.

By hand, n = 5, G = 2: groups {0, 3, 4} and {1, 2}, say. Workers 0, 2 and 3 straggle: g = g_0 (of 4) + g_1 (of 1).
Read next: `lazy_family.py`.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.facts import BoolArray, Facts, FloatArray, IntArray, Sets, Whole
from gradmux.orchestrator.schemes.scheme import Context, Parameter, Params, Sample, Scheme, SchemeInfo, StragglerModel
from gradmux.orchestrator.schemes.stragglers import Covered, PerRound, choose_model
from gradmux.orchestrator.schemes.synchronous import OneRoundScheme


def group_tolerance(workers: int, groups: Whole) -> Whole:
    """s: all members but one of the smallest of G groups."""
    return workers // groups - 1


class GroupCode(FractionalCode):
    """Exactly `groups` groups; any `n // groups - 1` workers may straggle."""

    def __init__(self, workers: int, groups: int, seed: int) -> None:
        super().__init__(workers, group_tolerance(workers, groups), seed)
        self.chunks = groups
        self.load = 1.0 / groups


class Grouping(OneRoundScheme):
    """One answer of each group per round."""

    def straggler_model(self, name: str) -> StragglerModel:
        """n // G - 1 per round; "either" admits every set that contains no whole group."""
        if name == "either":
            return Covered(self.decodes_from)
        per_round = PerRound(self.code.tolerance)
        return choose_model(self.name, name, per_round, per_round)


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when G does not fit n."""
    groups = int(params["groups"])
    if not 1 <= groups <= context.workers:
        raise ConfigError(
            f"grouping: G (groups) = {groups} does not fit {context.workers} workers: use 1 <= G <= {context.workers}"
        )
    return Grouping("grouping", GroupCode(context.workers, groups, context.seed), context)


class GroupingFacts(Facts):
    """G groups, whether or not their number comes from an s."""

    def fits(self, sets: Sets) -> BoolArray:
        """1 <= G <= n."""
        groups = sets.ints("groups")
        return np.logical_and(groups >= 1, groups <= sets.workers)

    def tolerance(self, sets: Sets) -> IntArray:
        """n // G - 1."""
        return group_tolerance(sets.workers, sets.ints("groups"))

    def chunks(self, sets: Sets) -> IntArray:
        """G."""
        return sets.ints("groups")

    def task_load(self, sets: Sets) -> FloatArray:
        """1/G."""
        return 1.0 / sets.ints("groups")


INFO = SchemeInfo(
    name="grouping",
    title="G groups, each computing the same part: the first answer of each counts",
    build=build,
    parameters=(Parameter("groups", "G", int, None, "parts of the batch, each computed by one group of workers"),),
    constraints="1 <= G <= n",
    load="1/G",
    delay="0",
    tolerates="every set of stragglers that contains no whole group; so any n // G - 1",
    costs="n/G times the work of uncoded",
    avoid="as gc: when compute time dominates, since the load is 1/G in every round",
    source="Chen, Giannakis, Sun, Yin 2018 (arXiv 1805.09965), LAG's shards; Zhang and Simeone 2019 (1905.09148)",
    example="n = 5, G = 2: groups {0, 3, 4} and {1, 2}; workers 0, 2 and 3 straggle: g = y_4 + y_1.",
    sample=Sample(5, {"G": 2}, late={0: (0, 2, 3)}),
    facts=GroupingFacts(),
)
