"""Batches worth trying: the published search's own grid, and the tuner's.

Knows no delays. Read next: `orchestrator/tune/search.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray

BACKUP_SHARES = (0.75, 0.9, 0.95, 1.0)
BACKUP_SLACKS = (0.5, 1.0, 2.0)
STRETCHES_STEP = 0.25
"""the number of stretches that a model is trained in grows by this share at most"""
TOLERANCE = 1e-9
"""of comparing loads"""


def published(workers: int, jobs: int, max_delay: int) -> list[Batch]:
    """The search of the authors of sequential gradient coding: `gc`, `sr-sgc`, `m-sgc`, with their loads.

    Their `gc` with s admits s - 1 stragglers while it charges the load of s. Source: the code to arXiv 2211.13802.
    """
    s = np.arange(1, workers + 1)
    gc = Batch("gc", workers, {"stragglers": s - 1}, workers, "cyclic", loads=(s + 1) / workers)
    repeat = _sequential("sr-sgc", workers, repeat_windows(max_delay, jobs), np.arange(1, workers + 1))
    multiplexed = _sequential("m-sgc", workers, multiplexed_windows(max_delay - 1, jobs - 1), np.arange(1, workers + 1))
    return [gc, _with_published_load(repeat), _with_published_load(multiplexed)]


def for_tuning(
    scheme: str,
    workers: int,
    *,
    models: int,
    max_load: float,
    by_mu: bool = False,
    steps: int = 1,
    passes: int | None = None,
) -> list[Batch]:
    """What the tuner tries of one scheme on n workers: all parameters that can make a difference.

    `max_load`: largest load, as a multiple of 1/n; `models`: M, which bounds the delay T by M - 1. The codes are
    fractional, under the papers' rule also cyclic where that is less load. When rounds close as early as they may, such
    a code matters through its number of groups alone, and W of SR-SGC through s alone, so that one set stands for many;
    lambda of SR-SGC is tried in steps of a quarter.
    `steps`: of each model, which bounds K of stretches; for these, whole batches, `max_load` bounds the copies.
    `passes`: of a batch, which nothing cuts into more parts.
    """
    code = FractionalGrid(workers, max_load, by_mu)
    makers: dict[str, Callable[[], Batch]] = {
        "uncoded": lambda: Batch("uncoded", workers, {}, 1),
        "gc": lambda: code.coded("gc"),
        "sr-sgc": lambda: code.repeat(models - 1),
        "m-sgc": lambda: code.multiplexed(models - 1),
        "backup": lambda: _backup(workers),
        "pipeline": code.pipeline,
        "stretch": lambda: _stretches(workers, steps),
    }
    batch = replace(makers[scheme](), passes=passes)
    if scheme == "stretch":
        return [batch]
    kept = [batch, *([_cyclic(batch)] if by_mu and batch.code == "fractional" and batch.size else [])]
    kept = [each if passes is None else each.take(each.parts() <= passes) for each in kept if each.size]
    return [each.take(each.load() * workers <= max_load * (1 + TOLERANCE)) for each in kept if each.size]


class FractionalGrid:
    """Parameters around a fractional code over n workers."""

    def __init__(self, workers: int, max_load: float, by_mu: bool) -> None:
        self._workers, self._by_mu = workers, by_mu
        every = np.arange(min(workers, math.floor(max_load * (1 + TOLERANCE))))
        chunks = np.unique(workers // (every + 1))[::-1]
        self._tolerances: IntArray = every if by_mu else workers // chunks - 1
        """the s worth trying: the largest of those that make the same groups; under the mu rule each counts"""

    def coded(self, scheme: str) -> Batch:
        """Every s but 0, which is uncoded."""
        s = self._tolerances[self._tolerances > 0]
        return Batch(scheme, self._workers, {"stragglers": s}, s.size, "fractional")

    def pipeline(self) -> Batch:
        """Every s."""
        s = self._tolerances
        return Batch("pipeline", self._workers, {"per_job": np.full(s.size, self._workers), "stragglers": s}, s.size)

    def multiplexed(self, max_delay: int) -> Batch:
        """(B, W) within the delay, and every lambda below n."""
        windows = multiplexed_windows(max_delay, max_delay + 2)
        chunks = np.unique(self._workers // np.arange(1, self._workers + 1))[::-1]
        most = np.arange(self._workers) if self._by_mu else self._workers // chunks - 1
        return _sequential("m-sgc", self._workers, windows, most, "fractional")

    def repeat(self, max_delay: int) -> Batch:
        """B within the delay, lambda in steps, and the W that gives each s."""
        most = np.array(steps(self._workers - 1, 0.25))
        sets = {
            (b, b * (fold - 1) + 1, int(lam))
            for b in range(1, max_delay + 1)
            for s in self._tolerances[self._tolerances > 0].tolist()
            for lam in most[most >= s].tolist()
            for fold in _folds(lam, s)
        }
        burst, window, lam = np.array(sorted(sets), dtype=np.int64).reshape(-1, 3).T
        values = {"burst": burst, "window": window, "max_stragglers": lam}
        return Batch("sr-sgc", self._workers, values, burst.size, "fractional")


def steps(most: int, fraction: float) -> list[int]:
    """1, 2, 3, ... up to `most`, in steps of at least 1 and at most `fraction` of the last."""
    found, value = [], 1
    while value <= most:
        found.append(value)
        value += max(1, math.floor(value * fraction))
    return found


def _folds(most: int, tolerance: int) -> range:
    """The least (W-1+B)/B for which SR-SGC with lambda = `most` has s = `tolerance`, if there is one."""
    fold = max(2, -(-most // tolerance))
    return range(fold, fold + (-(-most // fold) == tolerance))


def _cyclic(batch: Batch) -> Batch:
    """The same under cyclic codes where these are less load; elsewhere fractional ones let more patterns go."""
    cyclic = replace(batch, code="cyclic")
    return cyclic.take(cyclic.load() < batch.load() * (1 - TOLERANCE))


def _backup(workers: int) -> Batch:
    share, slack = (axis.ravel() for axis in np.meshgrid(BACKUP_SHARES, BACKUP_SLACKS))
    return Batch("backup", workers, {"share": share, "mu": slack}, share.size)


def _stretches(copies: int, most: int) -> Batch:
    """K as few stretches as there are, or more of them: most // 1, most // 2, ... rounded up, about a quarter apart."""
    shares = {-(-most // number) for number in steps(most, STRETCHES_STEP)}
    lengths: IntArray = np.array(sorted(shares), dtype=np.int64)
    values = {"copies": np.full(lengths.size, copies), "steps": lengths, "quantile": np.ones(lengths.size)}
    return Batch("stretch", copies, values, lengths.size)


def repeat_windows(max_delay: int, longest: int) -> IntArray:
    """(pairs, 2): (B, W) of SR-SGC with B <= max_delay and W <= longest."""
    pairs = [(b, w) for b in range(1, max_delay + 1) for w in range(b + 1, longest + 1, b)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def multiplexed_windows(max_delay: int, longest: int) -> IntArray:
    """(pairs, 2): (B, W) of M-SGC with T = W - 2 + B <= max_delay and W <= longest."""
    pairs = [(b, w) for w in range(2, longest + 1) for b in range(1, w) if w - 2 + b <= max_delay]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _sequential(scheme: str, workers: int, windows: IntArray, most: IntArray, code: str = "cyclic") -> Batch:
    burst, window = np.repeat(windows, most.size, axis=0).T
    values = {"burst": burst, "window": window, "max_stragglers": np.tile(most, len(windows))}
    return Batch(scheme, workers, values, burst.size, code)


def _with_published_load(batch: Batch) -> Batch:
    workers = batch.workers
    if batch.scheme == "sr-sgc":
        return batch.with_loads((batch.tolerance() + 1) / workers)
    burst, window, most = (batch.ints(name) for name in ("burst", "window", "max_stragglers"))
    coded = (most + 1) * (window - 1 + burst) / (workers * (burst + (window - 1) * (most + 1)))
    uncoded = (window - 1 + burst) / (workers * (window - 1))
    return batch.with_loads(np.where(most == workers, uncoded, coded))
