"""`stretch`, ours: a worker makes K optimizer steps of one model in a row, and copies of it are a repetition code.

Where a worker computes a whole batch in less time than a call takes to come back, no way of splitting a batch can win:
what a step costs is the call. So a job is K steps of one model. Its state (weights, optimizer, scheduler) goes to a
worker, which makes the steps as the client would, on the same batches in the same passes, and the state after them
comes back, with each step's loss. `copies` workers do the same work, and the first answer ends the job: an (n, n - 1)
repetition code over whole batches. As in `pipeline` the models overlap: a model's next job goes out when its last has
ended and its copies fit under C, the model that lags most first. A step then takes (E[fastest D of n] + K slope) / K.

Since the first answer ends a job, no answer of it says that another is late. So a job counts as late at a quantile q of
what D + K slope has been so far, and one more copy goes out then, another one at twice that (`lateness.py`).

By hand, M = 2, K = 3, 2 copies, C = 3, 4 steps each: at 0 s job 0 (steps 0 to 2 of model 0) goes to workers 0 and 1;
one place is left, too few for job 1. Worker 1 answers job 0 at 5 s, but worker 0 goes on: 1 + 2 = 3, so job 1 (model 1,
steps 0 to 2) goes out. Job 2, the last step of model 0, follows when two places are free.
Read next: `pipeline_auto.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.asks import Call
from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.facts import Facts, FloatArray, IntArray, Sets
from gradmux.orchestrator.schemes.lateness import Lateness
from gradmux.orchestrator.schemes.overlapping import OverlappingScheme
from gradmux.orchestrator.schemes.scheme import (
    Assignment,
    Context,
    Parameter,
    Params,
    Sample,
    Scheme,
    SchemeInfo,
    StragglerModel,
)
from gradmux.orchestrator.schemes.stragglers import Covered, PerRound, choose_model
from gradmux.orchestrator.schemes.synchronous import CodedJob, OneRoundScheme


class Stretch(OverlappingScheme[CodedJob], OneRoundScheme):
    """`asks.Stretches`, `asks.Following` and `asks.Patient`: round t is job t, K steps on each of its copies."""

    weights_known = False
    """what comes back is a state, which cannot be added to others"""
    splits = False
    """copies that do not go out together are no protection"""

    def __init__(self, steps: int, quantile: float, context: Context) -> None:
        code = FractionalCode(context.workers, context.workers - 1, redraw=False)
        super().__init__("stretch", code, context)
        self._steps, self._next = steps, 1
        """K; and of the job that is to be assigned next"""
        self._lateness = Lateness(quantile)
        self._loads: dict[int, float] = {}
        """job -> its steps, while it is active or in flight"""

    def stretch(self, model: int, left: int) -> int:
        """K, or what is left."""
        self._next = min(self._steps, left)
        return self._next

    def assign(self, t: int) -> Assignment:
        """Every copy is given the whole batches of job t."""
        self._loads[t], self._next = float(self._next), 1
        return super().assign(t)

    def began(self, call: Call, at_s: float) -> None:
        """A copy is on its way."""
        self._lateness.began(call, self._loads[call.round], at_s)

    def ended(self, call: Call, at_s: float, answered: bool) -> None:
        """It came back."""
        self._lateness.ended(call, at_s, answered)

    def patience_s(self, t: int) -> float | None:
        """After so long one more copy is worth its while."""
        return self._lateness.limit_s(self._loads[t])

    def wanted(self, t: int) -> tuple[int, ...]:
        """One worker, when none has answered."""
        reception = self._active[t].reception
        return tuple(reception.helpful()[: reception.needed])

    def end_round(self, t: int) -> tuple[int, ...]:
        """Job t decodes now; what is still in flight of older ones began long ago."""
        due = super().end_round(t)
        self._loads = {job: load for job, load in self._loads.items() if job in self._active}
        return due

    def straggler_model(self, name: str) -> StragglerModel:
        """All copies but one."""
        if name == "either":
            return Covered(self.decodes_from)
        per_round = PerRound(self.code.tolerance)
        return choose_model(self.name, name, per_round, per_round)


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when copies, K or q is out of range."""
    copies, steps, quantile = int(params["copies"]), int(params["steps"]), float(params["quantile"])
    if copies < 1:
        raise ConfigError(f"stretch: copies = {copies}: at least 1 worker has to make the steps")
    if steps < 1:
        raise ConfigError(f"stretch: K (steps) = {steps}: a stretch has at least 1 step")
    if not 0 < quantile <= 1:
        raise ConfigError(
            f"stretch: q (quantile) = {quantile:g} is no share of the delays: use 0 < q <= 1, 1 for never"
        )
    return Stretch(steps, quantile, replace(context, workers=copies))


class StretchFacts(Facts):
    """Copies of whole batches, several of them in a row; the last of a model may be fewer."""

    even = False
    overlapping = True

    def tolerance(self, sets: Sets) -> IntArray:
        """All copies but one."""
        return sets.ints("copies") - 1

    def task_load(self, sets: Sets) -> FloatArray:
        """K."""
        return sets.ints("steps").astype(np.float64)


INFO = SchemeInfo(
    name="stretch",
    title="Stretches: K optimizer steps of one model in one call, on a few copies, of which the first to answer counts",
    build=build,
    parameters=(
        Parameter("copies", "copies", int, 1, "workers that make the same steps; the first answer counts"),
        Parameter("steps", "K", int, None, "optimizer steps of one model in one call"),
        Parameter("quantile", "q", float, 0.95, "of the delays, after which one more copy is invoked; 1: never"),
    ),
    constraints="1 <= copies <= C, K >= 1, 0 < q <= 1",
    load="K (whole batches)",
    delay="0 (jobs of other models overlap: nothing waits)",
    tolerates="all copies of a job but one; a job that is late is invoked again",
    costs="copies times the work of one machine; each copy reads whole batches; checkpoints wait for a job's end",
    avoid="when a whole batch takes a worker longer than a call takes to come back: pipeline splits batches",
    source="ours; repetition code, backups as in Dean and Ghemawat 2004",
    example=(
        "M = 2, K = 3, 2 copies, C = 3: job 0 is steps 0 to 2 of model 0 on workers 0 and 1; worker 1 answers at 5 s, "
        "and job 1, steps 0 to 2 of model 1, goes out, while worker 0 goes on."
    ),
    sample=Sample(2, {"copies": 2, "K": 3}, late={0: (0,)}, models=2, concurrency=3),
    stretches=True,
    facts=StretchFacts(),
)
