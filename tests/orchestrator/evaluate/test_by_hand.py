"""The example of docs/published-rule.md, by the evaluator and by the loop; and what the theory there rests on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.evaluate import Batch, Evaluator, Setting, bits
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.published.models import Arbitrary, Bursty
from gradmux.orchestrator.evaluate.published.mu_rule import most_admitted
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Limits, Mu
from gradmux.orchestrator.schemes.scheme import BoolArray
from gradmux.orchestrator.simulate import SimulationOptions, simulate

DELAYS_S = np.array([[1.0, 2.0, 5.0]])
LOAD = LoadModel(6.0, 1 / 3)
WAIT = Mu(1.0, "until", "bursty")
LIMITS = Limits(harvest_late=False)


def test_three_loads_in_one_round() -> None:
    batch = Batch("gc", 3, {"stragglers": np.arange(3)}, 3, "cyclic")
    played = Evaluator(Setting(DELAYS_S, jobs=1, wait=WAIT, limits=LIMITS, load=LOAD)).play(batch)
    assert played.total_s == pytest.approx([5.0, 6.0, 9.0])
    assert played.waits.tolist() == [1, 0, 0]
    for s, total_s in enumerate([5.0, 6.0, 9.0]):
        options = SimulationOptions(jobs=1, wait=WAIT, limits=LIMITS, load=LOAD)
        looped = simulate(DELAYS_S, "gc", {"stragglers": s, "code": "cyclic"}, options)
        assert looped.total_s == pytest.approx(total_s)


@given(data=st.data(), kind=st.sampled_from([Bursty, Arbitrary]))
def test_of_nested_sets_the_smaller_is_never_refused(data: st.DataObject, kind: type[Bursty | Arbitrary]) -> None:
    """So bisection finds where a loop ends that lets one worker after the other answer."""
    workers, burst, times = 6, data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    model, row = kind(np.array([burst]), np.array([burst + times]), workers), np.array([0])
    for _ in range(data.draw(st.integers(1, 8))):
        order = np.array(data.draw(st.permutations(range(workers))))
        last = bits.suffixes(order)
        least = [int(model.least(last[k : k + 1], row)[0]) for k in range(workers + 1)]
        assert least == sorted(least)
        most = data.draw(st.integers(0, workers))

        def admits(k: IntArray, places: IntArray, least: list[int] = least, most: int = most) -> BoolArray:
            return np.array([least[each] <= most for each in k.tolist()])

        by_one = next(k for k in range(workers, -1, -1) if least[k] <= most)
        assert most_admitted(admits, np.array([workers])).tolist() == [by_one]
        model.commit(last[by_one : by_one + 1])
