"""Every straggler pattern of the declared models, for small n: each due job decodes in time, and no round has to wait.

M-SGC's jobs do not influence each other, so one job shows all; SR-SGC takes workers from job B for job 0, so it plays
B + 1 jobs. Runs that have come to the same state are followed once. "either" holds the patterns of both models.
Complete for the sizes in COMPLETE; for the larger ones an even sample of the runs goes on from each round to the next,
unless the environment has EXHAUSTIVE=1: that plays them all, for hours at n = W = 4.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from itertools import combinations

import pytest

from orchestrator.errors import ConfigError
from orchestrator.schemes.scheme import StragglerModel
from tests.orchestrator.schemes.playing import Play, make, mask

CODES = ("fractional", "cyclic")
COMPLETE = [(1, 2), (1, 3), (1, 4), (2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2)]
"""(n, W): for each, all B and lambda"""
SAMPLED = [(3, 4), (4, 3), (4, 4)]
FOLLOWED = 5
"""runs that go on from each round, for the sampled sizes"""


def explore(play: Play, model: StragglerModel, followed: int | None = None) -> int:
    """Plays every admitted pattern; returns how many rounds were played. Fails on a decode that is late or wrong.

    With `followed`, about so many runs go on from each round; every pattern of the next round is still played on them.
    """
    reached, played = [pickle.dumps((play, model))], 0
    for _ in range(play.scheme.rounds):
        following = [after for state in reached for after in _rounds(state)]
        played += len(following)
        reached = sorted(set(following))
        reached = reached[:: max(1, len(reached) // followed)] if followed else reached
    return played


def _rounds(state: bytes) -> Iterator[bytes]:
    """The state after each round that the model admits."""
    play: Play
    model: StragglerModel
    play, model = pickle.loads(state)
    invoked = play.start()
    opened = pickle.dumps((play, model))
    for late in _subsets(invoked):
        stragglers = mask(play.scheme.workers, late)
        if model.admits(stragglers):
            then, model_then = pickle.loads(opened)
            then.answer(worker for worker in invoked if worker not in late)
            assert then.scheme.may_start(then.t + 1), f"round {then.t} may not end without {late}"
            model_then.commit(stragglers)
            then.end()
            then.forget()
            yield pickle.dumps((then, model_then))


def _subsets(workers: list[int]) -> Iterator[tuple[int, ...]]:
    return (late for size in range(len(workers) + 1) for late in combinations(workers, size))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(("workers", "window"), COMPLETE + SAMPLED)
@pytest.mark.parametrize("name", ["sr-sgc", "m-sgc"])
def test_every_pattern_of_the_sequential_schemes_decodes(name: str, workers: int, window: int, code: str) -> None:
    everything = (workers, window) in COMPLETE or "EXHAUSTIVE" in os.environ
    played = 0
    for burst in range(1, window):
        for most in range(workers + 1):
            jobs = 1 if name == "m-sgc" else burst + 1
            try:
                scheme = make(name, workers, jobs, burst=burst, window=window, max_stragglers=most, code=code)
            except ConfigError:
                continue
            played += explore(Play(scheme), scheme.straggler_model("either"), None if everything else FOLLOWED)
    assert played > 0


@pytest.mark.parametrize("code", [*CODES, "dft"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 6])
def test_every_pattern_of_gradient_coding_decodes(workers: int, code: str) -> None:
    for stragglers in range(workers):
        if code == "dft" and stragglers and (workers - stragglers) % 2 == 0:
            continue
        scheme = make("gc", workers, 1, stragglers=stragglers, code=code)
        assert explore(Play(scheme), scheme.straggler_model("either")) >= 1
