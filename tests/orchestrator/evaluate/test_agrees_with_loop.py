"""The evaluator is a second implementation of the loop, for speed: it must agree with it on every round's duration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.evaluate import Evaluator
from gradmux.orchestrator.simulate import Simulation
from tests.orchestrator.evaluate.cases import OVERLAPPING, SCHEMES, Case, cases


def durations_by_job(simulation: Simulation) -> list[float]:
    """Of an overlapping scheme, whose rounds close in any order."""
    return [line.end_s - line.start_s for line in sorted(simulation.lines, key=lambda line: line.round)]


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_round_of_every_parameter_set(scheme: str, data: st.DataObject) -> None:
    # Two second attempts that drew one delay arrive together, and the loop sends the next round between them.
    agrees(data.draw(cases(scheme)), tied=2 if scheme == "backup" else 0)


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "backup"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_same_where_answers_are_missing(scheme: str, data: st.DataObject) -> None:
    case = data.draw(cases(scheme, failing=True))
    agrees(case, tied=case.batch.workers)


def agrees(case: Case, tied: int) -> None:
    """Asserts that evaluator and loop agree on all columns; `tied`: by how much the peaks may differ."""
    played = Evaluator(case.setting).play(case.batch, detail=True)
    plain = Evaluator(case.setting).play(case.batch)
    np.testing.assert_allclose(plain.total_s, played.total_s, rtol=0, atol=1e-9)
    assert played.durations_s is not None
    assert played.peak is not None
    for column in range(case.batch.size):
        loop = case.simulated(column)
        if loop is None:
            assert np.isinf([played.total_s[column], played.billed_s[column]]).all()
            continue
        durations = durations_by_job(loop) if case.batch.scheme in OVERLAPPING else list(loop.durations)
        padded = np.pad(durations, (0, len(played.durations_s) - len(durations)))
        np.testing.assert_allclose(played.durations_s[:, column], padded, rtol=0, atol=1e-9)
        assert played.total_s[column] == pytest.approx(loop.total_s, abs=1e-9)
        assert played.billed_s[column] == pytest.approx(loop.billed_s, abs=1e-8)
        assert played.invocations[column] == loop.invocations
        assert played.waits[column] == loop.waits
        assert played.peak[column] == pytest.approx(loop.in_flight_max, abs=tied)
        assert case.batch.load()[column] >= loop.load - 1e-12
