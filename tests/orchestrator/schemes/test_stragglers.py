"""The straggler models against their definitions, read literally, over whole histories."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.scheme import BoolArray, StragglerModel
from gradmux.orchestrator.schemes.stragglers import Arbitrary, Bursty, Covered, Either, PerRound, choose_model
from tests.orchestrator.schemes.playing import Play, make, mask

WORKERS = 4
HISTORIES = st.lists(st.sets(st.integers(0, WORKERS - 1), max_size=3), max_size=8)


def admitted(model: StragglerModel, history: list[set[int]]) -> bool:
    """Is each round of the history admitted after the ones before?"""
    for late in history:
        if not model.admits(mask(WORKERS, late)):
            return False
        model.commit(mask(WORKERS, late))
    return True


def windows(history: list[set[int]], length: int) -> list[list[set[int]]]:
    """All runs of `length` rounds, shorter ones at the end included."""
    return [history[start : start + length] for start in range(len(history))]


def is_bursty(history: list[set[int]], burst: int, window: int, most: int) -> bool:
    """The definition: few in each window, and no worker late in two rounds that lie B .. W-1 apart."""
    few = all(len(set().union(*rounds)) <= most for rounds in windows(history, window))
    pairs = combinations(range(len(history)), 2)
    return few and not any(history[q] & history[r] for q, r in pairs if burst <= r - q <= window - 1)


def is_arbitrary(history: list[set[int]], times: int, window: int, most: int) -> bool:
    """The definition: few in each window, each at most N times in it."""
    return all(
        len(set().union(*rounds)) <= most
        and all(sum(worker in late for late in rounds) <= times for worker in range(WORKERS))
        for rounds in windows(history, window)
    )


BOUNDS = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, WORKERS))


@settings(max_examples=300)
@given(HISTORIES, BOUNDS)
def test_bursty(history: list[set[int]], bounds: tuple[int, int, int]) -> None:
    burst, more, most = bounds
    window = burst + more
    assert admitted(Bursty(burst, window, most, WORKERS), history) == is_bursty(history, burst, window, most)


@settings(max_examples=300)
@given(HISTORIES, BOUNDS)
def test_arbitrary(history: list[set[int]], bounds: tuple[int, int, int]) -> None:
    times, more, most = bounds
    window = times + more - 1
    assert admitted(Arbitrary(times, window, most, WORKERS), history) == is_arbitrary(history, times, window, most)


@settings(max_examples=200)
@given(HISTORIES, BOUNDS)
def test_either_is_the_union_over_whole_histories(history: list[set[int]], bounds: tuple[int, int, int]) -> None:
    """Not round by round: a history that begins in one model and goes on in the other belongs to neither."""
    burst, more, most = bounds
    models = Bursty(burst, burst + more, most, WORKERS), PerRound(1)
    literal = is_bursty(history, burst, burst + more, most) or all(len(late) <= 1 for late in history)
    assert admitted(Either(models), history) == literal


def test_either_tries_all_models_anew_after_a_pattern_outside_them() -> None:
    model = Either((PerRound(1), PerRound(2)))
    model.commit(mask(WORKERS, {0, 1, 2}))
    assert model.admits(mask(WORKERS, {0, 1}))
    model.commit(mask(WORKERS, {0, 1}))
    assert model.admits(mask(WORKERS, {2, 3}))


def test_nobody_late_always_conforms() -> None:
    """Even after a pattern that a deadline forced: a round in which all have answered never waits."""
    for model in (Bursty(1, 3, 1, WORKERS), Arbitrary(1, 3, 1, WORKERS)):
        model.commit(mask(WORKERS, {0, 1, 2}))
        assert model.admits(mask(WORKERS, {}))
        assert not model.admits(mask(WORKERS, {3}))


def test_covered_asks_about_those_who_answered() -> None:
    model = Covered(lambda answered: bool(answered[0]))
    assert model.admits(mask(WORKERS, {1, 2, 3}))
    assert not model.admits(mask(WORKERS, {0}))


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(ConfigError, match="gc has no straggler model 'burst': use one of bursty, arbitrary, either"):
        choose_model("gc", "burst", PerRound(0), PerRound(0))


class PublishedRule:
    """The authors' simulator of SR-SGC, transcribed: x[i, r] is what worker i did in round r, or -1 if dropped."""

    def __init__(self, workers: int, burst: int, window: int, most: int, jobs: int) -> None:
        self.workers, self.burst, self.window, self.most, self.jobs = workers, burst, window, most, jobs
        self.tolerance = int(np.ceil(burst * most / (window - 1 + burst)))
        self.x = np.full((workers, jobs + burst), np.nan)

    def start(self, r: int) -> bool:
        """False when round r is skipped."""
        if r >= self.jobs and (self.x[:, r - self.burst] == r - self.burst).sum() >= self.workers - self.tolerance:
            return False
        self.x[:, r] = r
        if r >= self.burst:
            without = np.flatnonzero(self.x[:, r - self.burst] != r - self.burst)
            self.x[without[: max(0, len(without) - self.tolerance)], r] = r - self.burst
        return True

    def _stragglers(self, rounds: range) -> BoolArray:
        found = np.zeros(self.workers, dtype=np.bool_)
        for q in rounds:
            column = self.x[:, q]
            exempt = np.isin(column, (q, -1)).all() and (column == -1).sum() <= self.tolerance
            if not exempt:
                found |= column == -1
        return found

    def accepts(self, r: int, late: BoolArray) -> bool:
        """Conditions (1) and (2)."""
        first = max(0, r + 1 - self.window)
        few = (late | self._stragglers(range(first, r))).sum() <= self.most
        return bool(few and not (late & self._stragglers(range(first, max(0, r + 1 - self.burst)))).any())


@settings(max_examples=120)
@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_sr_sgc_follows_the_published_rule(burst: int, times: int, data: st.DataObject) -> None:
    """Same repeaters, same verdicts, round by round, as the authors' simulator gives."""
    workers, jobs, window = 6, 6, burst * times + 1
    most = data.draw(st.integers(0, workers))
    scheme = make("sr-sgc", workers, jobs, burst=burst, window=window, max_stragglers=most, code="cyclic")
    play, model, rule = (
        Play(scheme),
        scheme.straggler_model("bursty"),
        PublishedRule(workers, burst, window, most, jobs),
    )
    for r in range(scheme.rounds):
        goes_on, invoked = rule.start(r), play.start()
        if r < jobs:
            repeaters = {key.worker for key, task in play.tasks.items() if key.round == r and task.job != r}
            assert repeaters == set(np.flatnonzero(rule.x[:, r] == r - burst).tolist())
        assert bool(invoked) == (goes_on and r >= burst) or r < jobs
        late = mask(workers, data.draw(st.sets(st.sampled_from(invoked))) if invoked else [])
        if goes_on:
            assert model.admits(late) == rule.accepts(r, late)
            late &= rule.accepts(r, late)
            rule.x[late, r] = -1
        play.answer(worker for worker in invoked if not late[worker])
        model.commit(late)
        play.end()
