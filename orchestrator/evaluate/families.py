"""The one table of evaluated schemes by name: what plays each under either wait policy, and where that does not do.

All else that depends on the scheme is in its own `Facts` (`schemes/facts.py`). A scheme that is not in the table is
`simulate.simulate`'s, and so is what is not covered. Read next: `evaluator.py`, `worth_trying.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from gradmux.orchestrator.evaluate import backup, multiplexed, one_round, pipeline, repeat, stretch, worth_trying
from gradmux.orchestrator.evaluate.batch import Batch, facts_of
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.published import multiplexed_mu, one_round_mu, repeat_mu
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.evaluate.worth_trying import Bounds
from gradmux.orchestrator.policies import Mu
from gradmux.orchestrator.schemes.backup import INFO as BACKUP
from gradmux.orchestrator.schemes.gradient_coding import INFO as GC
from gradmux.orchestrator.schemes.multiplexed import INFO as M_SGC
from gradmux.orchestrator.schemes.pipeline import INFO as PIPELINE
from gradmux.orchestrator.schemes.selective_repeat import INFO as SR_SGC
from gradmux.orchestrator.schemes.stretch import INFO as STRETCH
from gradmux.orchestrator.schemes.uncoded import INFO as UNCODED


class Play(Protocol):
    """Plays a batch of one kind of scheme."""

    def __call__(self, batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played: ...


class Together(Protocol):
    """Plays several batches at once, of different n."""

    def __call__(self, parts: Sequence[tuple[Batch, Draws]], setting: Setting, *, detail: bool) -> list[Played]: ...


Grid: TypeAlias = Callable[[Bounds], Batch]


@dataclass(frozen=True, slots=True)
class Family:
    """How one scheme is evaluated."""

    earliest: Play
    by_mu: Play | None
    """under the papers' rule; None: not at all. Where rounds overlap none closes, so the rule does not matter"""
    grid: Grid
    """what is worth trying"""
    beyond: Grid | None = None
    """what is, besides, but is the loop's to play"""
    together: Together | None = None
    alike: tuple[str, ...] = ()
    """parameters that columns share which are played together, under rule earliest"""
    step: float = 0.5
    """n grows by this share at most in a search; what takes longest to evaluate doubles it"""
    failing: bool = True
    """is it covered where calls fail?"""
    late_by_mu: bool = True
    """is it under the papers' rule, where late answers count?"""


FAMILIES: dict[str, Family] = {
    UNCODED.name: Family(one_round.play, one_round_mu.play, worth_trying.plain),
    GC.name: Family(one_round.play, one_round_mu.play, worth_trying.coded),
    SR_SGC.name: Family(
        repeat.play, repeat_mu.play, worth_trying.repeats, alike=("burst",), step=1.0, late_by_mu=False
    ),
    M_SGC.name: Family(
        multiplexed.play,
        multiplexed_mu.play,
        worth_trying.multiplexed,
        worth_trying.without_groups,
        alike=("burst", "window"),
        step=1.0,
    ),
    BACKUP.name: Family(backup.play, None, worth_trying.backups, failing=False),
    PIPELINE.name: Family(pipeline.play, pipeline.play, worth_trying.pipelines, together=pipeline.play_all, step=0.125),
    STRETCH.name: Family(stretch.play, stretch.play, worth_trying.stretches),
}
"""in the order in which they are tried"""
LATE_LEFT_OUT = tuple(scheme for scheme, family in FAMILIES.items() if not family.late_by_mu)
"""those that are evaluated under the papers' rule as if late answers did not count"""


def play_of(scheme: str, *, by_mu: bool) -> Play | None:
    """What plays a scheme under this rule; None: nothing does."""
    family = FAMILIES.get(scheme)
    return None if family is None else family.by_mu if by_mu else family.earliest


def one_load(batch: Batch) -> bool:
    """Do all invocations of a column have the same load?"""
    return batch.loads is not None or batch.facts.even


def uncovered(scheme: str, setting: Setting, *, fixed_loads: bool = False) -> str:
    """Why a scheme of the table is left to the loop in this setting, whatever its parameters; empty: it is not."""
    family, facts, by_mu = FAMILIES[scheme], facts_of(scheme), isinstance(setting.wait, Mu)
    if by_mu and setting.limits.harvest_late and not family.late_by_mu:
        return f"{scheme} under the mu rule is evaluated with harvest_late = false only: use simulate"
    if by_mu and setting.load.scales and not (fixed_loads or facts.even or facts.overlapping):
        return f"{scheme} under the mu rule is not evaluated where delays grow in proportion to the load: use simulate"
    if not family.failing and np.isinf(setting.delays_s).any():
        return f"{scheme} is not evaluated where calls fail: use simulate"
    return ""
