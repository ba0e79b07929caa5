"""A delay profile: how long each worker took in each round, and what can be drawn from it.

Knows nothing of where the numbers come from. A failed invocation is infinitely slow here, so that nothing can
take it for a fast answer; when it was found to have failed stands beside it. Read next: `failures.py` (the rule for
these), `formats.py` (files), `generators.py` (synthetic profiles).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gradmux.orchestrator.closing import TIMEOUT_S
from gradmux.orchestrator.delays.failures import Failures
from gradmux.orchestrator.errors import ConfigError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
Array = TypeVar("Array", BoolArray, FloatArray)

NO_ANSWERS = "the delay profile holds failed invocations only: there is no delay to use"
MATRIX_DIMENSIONS = 2
LONG_COLUMNS = 3
"""of a table with one line per answer: round, worker, seconds"""


def _nowhere() -> BoolArray:
    return np.zeros((0, 0), dtype=np.bool_)


def _unstated() -> FloatArray:
    return np.zeros((0, 0))


@dataclass(frozen=True, slots=True, eq=False)
class DelayProfile:
    """Delays of `rounds` rounds and `workers` workers; arrays are copied, checked and made read-only.

    Raises ConfigError for anything but a (rounds, workers) matrix of delays >= 0 with at least one answer in it.
    """

    delays_s: FloatArray
    """(rounds, workers) seconds from invocation to answer; inf where the invocation failed"""
    load: float = 0.0
    """fraction of one batch that each worker processed when this was measured"""
    slope_s: float | None = None
    """further seconds per unit of load; None when it was not measured"""
    base_load: float | None = None
    """load that `delays_s` stands for when a slope is applied; None means `load`"""
    cold: BoolArray = field(default_factory=_nowhere)
    """(rounds, workers), true where a sandbox had to start first; leave out for nowhere"""
    failed: BoolArray = field(default_factory=_nowhere)
    """(rounds, workers), true where no usable answer came; an infinite delay counts as failed too"""
    name: str = ""
    scales: bool = False
    """true: delays are in proportion to the load, their tails too; `slope_s` is then how the constant part grows"""
    found_s: FloatArray = field(default_factory=_unstated)
    """(rounds, workers) seconds until a failed invocation was found to have failed, inf where that is not known, and
    beside every answer; left out: the delay that is given where `failed` is true"""

    def __post_init__(self) -> None:
        delays_s = delay_matrix(self.delays_s)
        failed = _mask(self.failed, delays_s.shape, "failed") | np.isinf(delays_s)
        if failed.all():
            raise ConfigError(NO_ANSWERS)
        stated_s = _same_shape(self.found_s, delays_s.shape, "found_s") if self.found_s.size else delays_s
        found_s = np.where(failed, stated_s, np.inf)
        delays_s[failed] = np.inf
        cold = _mask(self.cold, delays_s.shape, "cold")
        _check_scalars(self.load, self.base_load, self.slope_s)
        if self.scales and not self.reference_load() > 0:
            raise ConfigError("delays in proportion to the load need the load that they were measured at: load")
        for array in (delays_s, failed, cold, found_s):
            array.setflags(write=False)
        object.__setattr__(self, "delays_s", delays_s)
        object.__setattr__(self, "failed", failed)
        object.__setattr__(self, "cold", cold)
        object.__setattr__(self, "found_s", found_s)

    def failures(self, timeout_s: float = TIMEOUT_S) -> Failures:
        """When its failed invocations are found, where a function may run for `timeout_s`."""
        return Failures(timeout_s, self.found_s if np.isfinite(self.found_s).any() else None)

    @property
    def rounds(self) -> int:
        """Rows."""
        return int(self.delays_s.shape[0])

    @property
    def workers(self) -> int:
        """Columns."""
        return int(self.delays_s.shape[1])

    def delays_at(self, load: float, *, slope_s: float | None = None, base_load: float | None = None) -> FloatArray:
        """(rounds, workers) seconds, had each worker processed `load`: `delays_s + slope_s * (load - base_load)`.

        The two options override the profile's own figures; a profile without a slope is taken as it is. One additive
        shift for all, as in the published simulator: it keeps the order of arrivals, and may give negative delays.
        Where delays are in proportion to the load, and no slope is given: `delays_s * load / base_load`.
        """
        if self.scales and slope_s is None:
            return self.delays_s * (load / self.reference_load(base_load))
        slope = (self.slope_s or 0.0) if slope_s is None else slope_s
        return self.delays_s + slope * (load - self.reference_load(base_load))

    def to_dict(self) -> dict[str, Any]:
        """Its size and what it stands for, for --json."""
        return {
            "rounds": self.rounds,
            "workers": self.workers,
            "load": self.load,
            "slope_s": self.slope_s,
            "scales": self.scales,
            "failed": int(self.failed.sum()),
            "cold": int(self.cold.sum()),
        }

    def reference_load(self, base_load: float | None = None) -> float:
        """The load that `delays_s` stands for: `base_load` when given, else the profile's own."""
        own = self.load if self.base_load is None else self.base_load
        return own if base_load is None else base_load

    def take(self, rows: IntArray) -> DelayProfile:
        """The profile of these rows, in this order; a row may be taken more than once."""
        return replace(
            self,
            delays_s=self.delays_s[rows],
            failed=self.failed[rows],
            cold=self.cold[rows],
            found_s=self.found_s[rows],
        )

    def tile(self, rounds: int) -> DelayProfile:
        """`rounds` rounds: round t uses row t mod rows."""
        _check_count("rounds", rounds)
        return self.take(np.arange(rounds) % self.rounds)

    def resample(self, *, seed: int, rounds: int | None = None, block: int = 1) -> DelayProfile:
        """Bootstrap: `rounds` rows drawn with replacement, in runs of `block` consecutive rows (circular).

        `block = 1` treats rounds as independent; a longer block keeps bursts that span rounds together.
        """
        count = self.rounds if rounds is None else rounds
        _check_count("rounds", count)
        _check_count("block", block)
        starts = np.random.default_rng(seed).integers(self.rounds, size=math.ceil(count / block))
        rows = (starts[:, None] + np.arange(block)).ravel()[:count] % self.rounds
        return self.take(rows)

    def split(self, share: float) -> tuple[DelayProfile, DelayProfile]:
        """(to tune on, held out): the first `share` of the rounds and the rest; each has at least one round."""
        if self.rounds == 1:
            raise ConfigError("a delay profile of one round cannot be split; measure at least 2 rounds")
        if not 0.0 < share < 1.0:
            raise ConfigError(f"share must lie between 0 and 1, got {share:g}")
        cut = min(max(round(share * self.rounds), 1), self.rounds - 1)
        return self.take(np.arange(cut)), self.take(np.arange(cut, self.rounds))

    def same_as(self, other: DelayProfile) -> bool:
        """Equal in every delay, mark and figure; names may differ."""
        figures = (self.load, self.reference_load(), self.slope_s, self.scales)
        return figures == (other.load, other.reference_load(), other.slope_s, other.scales) and all(
            np.array_equal(mine, theirs)
            for mine, theirs in (
                (self.delays_s, other.delays_s),
                (self.failed, other.failed),
                (self.cold, other.cold),
                (self.found_s, other.found_s),
            )
        )


def delay_matrix(given: npt.ArrayLike) -> FloatArray:
    """A copy of `given` as (rounds, workers) seconds; inf: no answer. Raises: ConfigError that names anything else."""
    try:
        delays_s = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        said = str(error).partition("\n")[0]
        raise ConfigError(
            f"delays must be a (rounds, workers) matrix of seconds, each round with as many: {said}"
        ) from None
    _check_delays(delays_s)
    _refuse_long_format(delays_s)
    if np.isinf(delays_s).all():
        raise ConfigError(NO_ANSWERS)
    return delays_s


def _refuse_long_format(delays_s: FloatArray) -> None:
    """One line per answer (round, worker, seconds) is not a matrix, although it may look like one of three workers."""
    if delays_s.shape[1] != LONG_COLUMNS or len(delays_s) < LONG_COLUMNS + 1:
        return
    rounds, workers = (np.unique(delays_s[:, column]) for column in (0, 1))
    counted = all(
        len(numbers) > 1 and numbers[0] in (0, 1) and np.array_equal(numbers, numbers[0] + np.arange(len(numbers)))
        for numbers in (rounds, workers)
    )
    if counted and len(np.unique(delays_s[:, :2], axis=0)) == len(delays_s) == len(rounds) * len(workers):
        raise ConfigError(
            "the delays look like one line per answer (round, worker, seconds): give one row per round and one column "
            f"per worker, here {len(rounds)} x {len(workers)}"
        )


def _check_delays(delays_s: FloatArray) -> None:
    if delays_s.ndim != MATRIX_DIMENSIONS:
        raise ConfigError(f"a delay profile is a (rounds, workers) matrix, got {delays_s.ndim} dimension(s)")
    rounds, workers = delays_s.shape
    if rounds == 0 or workers == 0:
        raise ConfigError(f"the delay profile is empty: {rounds} rounds, {workers} workers")
    for wrong, what in ((np.isnan(delays_s), "not a number"), (delays_s < 0, "negative")):
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise ConfigError(
                f"{int(wrong.sum())} of {delays_s.size} delays are {what}, the first in round {row}, worker {column}"
            )


def _check_scalars(load: float, base_load: float | None, slope_s: float | None) -> None:
    for label, value in (("load", load), ("base_load", base_load)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"{label} of a delay profile must be a fraction of the batch >= 0, got {value:g}")
    if slope_s is not None and not math.isfinite(slope_s):
        raise ConfigError(f"slope_s of a delay profile must be finite, got {slope_s:g}")


def _mask(mask: BoolArray, shape: tuple[int, ...], label: str) -> BoolArray:
    if mask.size == 0:
        return np.zeros(shape, dtype=np.bool_)
    return np.array(_same_shape(mask, shape, label), dtype=np.bool_)


def _same_shape(array: Array, shape: tuple[int, ...], label: str) -> Array:
    if array.shape != shape:
        raise ConfigError(f"{label} has shape {array.shape}, but the delays have {shape}")
    return array


def _check_count(label: str, count: int) -> None:
    if count < 1:
        raise ConfigError(f"{label} must be at least 1, got {count}")
