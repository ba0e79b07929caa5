"""Decides under which scheme a job goes on, from what its own rounds have measured: `scheme = { name = "auto" }`.

A run under auto is a sequence of segments. Two short ones are uncoded and measure: on n workers, and on a quarter of
them, which tells what a larger load costs. Then the tuner's search over these delays gives the scheme of the next
segment; at its end the newest delays are looked at again, since they may have drifted. A segment ends when all models
have done the same step and nothing is in flight, so that no job is lost and no answer is taken for another.

Pure: no clock, no fleet, no files. Read next: `orchestrator/tune/search.py`; `cli/wiring.py` plays the segments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from orchestrator.delays import DelayProfile
from orchestrator.delays.from_record import from_lines
from orchestrator.delays.load_fit import fit_load
from orchestrator.errors import ConfigError
from orchestrator.evaluate import grids
from orchestrator.record import EndLine, Line, RoundLine
from orchestrator.schemes.scheme import FloatArray
from orchestrator.tune.material import prepare
from orchestrator.tune.options import TuneOptions
from orchestrator.tune.search import Tried, batches, rank, try_all

AUTO = "auto"
"""the scheme's name in a job file, and the key of `Header.extra` under which a choice is recorded"""
PROBE_ROUNDS, SMALL_ROUNDS = 10, 5
"""rounds of the two measuring segments, at least"""
SMALL_SHARE = 4
"""the second one has n / 4 workers"""
FEWEST_ROUNDS = 5
"""measured rounds below which nothing is decided"""
PARTS = 4
"""a segment after the probe is a quarter of all steps, but at least FEWEST_STEPS"""
FEWEST_STEPS = 5
GAIN = 0.05
"""a change must promise at least this share less time: measured delays are only a sample"""
SCHEMES = ("uncoded", "gc", "m-sgc", "backup", "pipeline")
"""without sr-sgc, whose many parameter sets take long to search while the job waits"""
JUDGED_JOBS = 60
"""gradients over which candidates are compared"""
STEP = 0.4
"""n grows by this share from one candidate to the next"""


@dataclass(frozen=True, slots=True)
class AutoJob:
    """What bounds the choice."""

    models: int
    """M"""
    steps: int
    """per model, over the whole run"""
    workers: int
    """n of uncoded, and the most that a scheme may use for one job"""
    concurrency: int
    """C"""
    in_flight_cap: float | None = None
    max_load: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheme and why it was chosen."""

    scheme: str
    params: Mapping[str, int | float | str]
    workers: int
    """n"""
    reason: str
    predicted_s: float | None = None
    """per gradient, by the evaluator over the measured delays"""
    uncoded_s: float | None = None
    """the same for uncoded on all n workers"""

    def to_dict(self) -> dict[str, Any]:
        """For the record."""
        return {**asdict(self), "params": dict(self.params)}

    def describe(self) -> str:
        """One line for people."""
        params = "".join(f" {key}={value}" for key, value in self.params.items())
        told = f"{self.scheme}{params} on {self.workers} workers: {self.reason}"
        if self.predicted_s is None or self.uncoded_s is None:
            return told
        return f"{told} ({self.predicted_s:.3f} s a gradient predicted, uncoded {self.uncoded_s:.3f} s)"

    def same_scheme(self, other: Choice) -> bool:
        """Is it the same scheme with the same parameters?"""
        return (self.scheme, dict(self.params), self.workers) == (other.scheme, dict(other.params), other.workers)


@dataclass(frozen=True, slots=True)
class Segment:
    """What to play next: until every model has done `end` steps."""

    choice: Choice
    end: int


def uncoded(workers: int, reason: str) -> Choice:
    """Plain training on so many workers."""
    return Choice("uncoded", {}, workers, reason)


@dataclass(slots=True)
class Pilot:
    """Goes from segment to segment: `next_segment`, and when that is over `learn` its lines."""

    job: AutoJob
    probes: list[DelayProfile] = field(default_factory=list)
    """what was measured uncoded, before the first choice"""
    choice: Choice | None = None
    """under which the last segment was played, once one was chosen"""
    _planned: int = 0
    _decided: Choice | None = None

    def next_segment(self, done: Sequence[int]) -> Segment:
        """The segment after `done` steps of each model; some are not done yet."""
        job = self.job
        if len(set(done)) > 1:  # a former life ended within an overlapping scheme
            params = {"per_job": job.workers, "stragglers": 0}
            return Segment(Choice("pipeline", params, job.workers, "brings all models to one step"), max(done))
        at = done[0]
        if self._decided is None and self._planned < 2:
            self._planned += 1
            if self._planned == 1:
                return Segment(uncoded(job.workers, "measures"), self._end(at, PROBE_ROUNDS, 2))
            if job.workers >= SMALL_SHARE:
                few = uncoded(job.workers // SMALL_SHARE, "measures what load costs")
                return Segment(few, self._end(at, SMALL_ROUNDS, 1))
        self.choice = self._decided or uncoded(job.workers, "too little was measured")
        return Segment(self.choice, segment_end(at, job.steps))

    def _end(self, at: int, rounds: int, fewest: int) -> int:
        return min(self.job.steps, at + max(fewest, math.ceil(rounds / self.job.models)))

    def learn(self, lines: Sequence[Line]) -> Choice | None:
        """Takes the lines of the segment that is over; the choice for the next one, None while more is to be measured.

        Raises nothing for a segment that tells too little: then things stay as they are.
        """
        newest = measured(lines)
        if self.choice is None:
            self.probes += [newest] if newest is not None and self._planned else []
            wanted = 2 if self.job.workers >= SMALL_SHARE else 1
            if self._planned < wanted:
                return None
            before, windows, took_s = uncoded(self.job.workers, ""), self.probes, None
        else:
            before, windows, took_s = self.choice, [newest] if newest is not None else [], seconds_a_job(lines)
        self._decided = decide(self.job, windows, self._slope_s(), before, took_s)
        return self._decided

    def _slope_s(self) -> float | None:
        """Seconds per unit of load, from the probes; None when they had but one load."""
        if len({probe.load for probe in self.probes}) < 2:
            return None
        return max(0.0, fit_load(self.probes).slope_s)


def segment_end(at: int, steps: int) -> int:
    """Until which step the segment that begins at `at` goes; what would be left of a whole run joins the last one."""
    end = at + max(FEWEST_STEPS, math.ceil(steps / PARTS))
    return steps if steps - end < FEWEST_STEPS else end


# --- what was measured ---------------------------------------------------------------------------------------------


def measured(lines: Sequence[Line]) -> DelayProfile | None:
    """The delays of one segment, without cold starts; None when it holds no whole round."""
    try:
        profile = from_lines(lines)
    except ConfigError:
        return None
    warm_rows = profile.cold.mean(axis=1) <= 0.5
    if not warm_rows.any():
        return None
    delays_s, cold = profile.delays_s[warm_rows].copy(), profile.cold[warm_rows]
    medians_s = np.nanmedian(np.where(cold | np.isinf(delays_s), np.nan, delays_s), axis=1, keepdims=True)
    return DelayProfile(np.where(cold, medians_s, delays_s), load=profile.load)


def seconds_a_job(lines: Sequence[Line]) -> float | None:
    """What a gradient of this segment took: from the first dispatch to the last step, by the number of gradients."""
    rest = [line for line in lines if isinstance(line, RoundLine | EndLine)]
    starts_s = [group.at_s for line in rest for group in line.sent]
    ends_s = [each.at_s for line in rest for each in line.decoded]
    return (max(ends_s) - min(starts_s)) / len(ends_s) if starts_s and ends_s else None


def pooled(windows: Sequence[DelayProfile], workers: int, slope_s: float) -> DelayProfile:
    """All windows as one profile of `workers` columns, at the load of uncoded; narrow rows are laid side by side."""
    load = 1 / workers
    parts = [
        np.maximum(_widened(each.delays_s, workers) + slope_s * (load - each.load), _floor_s(each)) for each in windows
    ]
    return DelayProfile(np.concatenate(parts), load=load, slope_s=slope_s)


def _floor_s(window: DelayProfile) -> float:
    """A shift to another load makes no answer faster than half the fastest that was seen."""
    return float(window.delays_s.min()) / 2


def _widened(delays_s: FloatArray, workers: int) -> FloatArray:
    """(rounds, workers): each row, followed by the rows after it as far as they are needed."""
    folds = -(-workers // delays_s.shape[1])
    beside = [np.roll(delays_s, -fold, axis=0) for fold in range(folds)]
    wide: FloatArray = np.concatenate(beside, axis=1)[:, :workers]
    return wide


# --- the choice ----------------------------------------------------------------------------------------------------


def decide(
    job: AutoJob, windows: Sequence[DelayProfile], slope_s: float | None, before: Choice, took_s: float | None
) -> Choice:
    """The scheme for the next segment, from the delays in `windows`, while `before` was what ran last.

    `took_s`: what a gradient really took under `before`; None when it was uncoded. Without a slope no worker is given
    a larger load than under uncoded. Uncoded it is unless another promises GAIN less time; and so it stays with
    `before`, which is given up when it turned out slower than uncoded would have been.
    """
    rounds = sum(window.rounds for window in windows)
    if rounds < FEWEST_ROUNDS:
        return _stays(before, f"{rounds} measured rounds are too few to decide")
    max_load = 1.0 if slope_s is None else job.max_load
    options = TuneOptions(
        jobs=JUDGED_JOBS,
        models=job.models,
        concurrency=job.concurrency,
        workers=_candidates(job),
        in_flight_cap=job.in_flight_cap,
        max_load=max_load,
        schemes=SCHEMES,
        seed=job.seed,
    )
    material = prepare(pooled(windows, job.workers, slope_s or 0.0), options)
    tried = try_all(batches(material, options), material, options)
    found = {_key(choice): choice for choice in _choices(tried, options)}
    plain = found[_key(uncoded(job.workers, ""))]
    assert plain.predicted_s is not None
    best = min(found.values(), key=lambda choice: choice.predicted_s or math.inf)
    if took_s is not None and took_s > plain.predicted_s and before.scheme != "uncoded":
        return _told(plain, plain, f"{before.scheme} took {took_s:.3f} s a gradient, more than uncoded would")
    if _gain(best, plain) < GAIN:
        return _told(plain, plain, "nothing promises to be faster")
    kept = found.get(_key(before))
    if kept is not None and _gain(best, kept) < GAIN:
        return _told(kept, plain, "still the best" if took_s is not None else "nothing promises to be faster")
    return _told(best, plain, f"fastest of {len(found)} over {rounds} measured rounds")


def _candidates(job: AutoJob) -> tuple[int, ...]:
    """The n worth trying: all sizes in steps, and even shares of the concurrency."""
    shares = {job.concurrency // parts for parts in range(1, 2 * job.models + 1)}
    sizes = {*grids.steps(job.workers, STEP), *shares, job.workers}
    return tuple(sorted(size for size in sizes if 1 <= size <= job.workers))


def _choices(tried: list[Tried], options: TuneOptions) -> list[Choice]:
    """Everything that was tried, best first."""
    ranked = []
    for place, column in rank(tried, options):
        batch, total_s = tried[place].batch, float(tried[place].total_s[column])
        ranked.append(Choice(batch.scheme, batch.params(column), batch.workers, "", total_s / options.jobs))
    return ranked


def _key(choice: Choice) -> tuple[str, int, tuple[tuple[str, Any], ...]]:
    return choice.scheme, choice.workers, tuple(sorted(choice.params.items()))


def _gain(new: Choice, old: Choice) -> float:
    """Share of time that `new` saves."""
    assert new.predicted_s is not None
    assert old.predicted_s is not None
    return 1 - new.predicted_s / old.predicted_s


def _told(choice: Choice, plain: Choice, reason: str) -> Choice:
    return Choice(choice.scheme, choice.params, choice.workers, reason, choice.predicted_s, plain.predicted_s)


def _stays(before: Choice, reason: str) -> Choice:
    return Choice(before.scheme, before.params, before.workers, reason)
