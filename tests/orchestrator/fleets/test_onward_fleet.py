"""Rounds that are numbered onward: no worker sees a number twice, no loop another's answer."""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.fleets.between import OnwardFleet
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.schemes.scheme import Task


def call(round_index: int, worker: int) -> Invocation:
    return Invocation(round_index, worker, 1, (Task(round_index, (worker,), (1.0,)),), 0.5, 0, ())


def test_a_second_segment_goes_on_with_the_numbers_of_the_first() -> None:
    delays_s = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    fleet = OnwardFleet(ProfileFleet(DelayTable(delays_s, 2), LoadModel()))
    fleet.invoke([call(0, 0), call(0, 1)])
    fleet.invoke([call(1, 0)])
    assert [fleet.next(None).round for _ in range(3)] == [0, 0, 1]  # type: ignore[union-attr]
    fleet.begin_segment()
    assert fleet.first == 2
    start_s = fleet.invoke([call(0, 1)])
    arrival = fleet.next(None)
    assert arrival is not None
    assert arrival.round == 0
    assert arrival.at_s - start_s == 3.0  # row 2 of the profile: it is round 2 out there


def test_an_answer_of_the_segment_before_has_a_number_that_no_loop_knows() -> None:
    fleet = OnwardFleet(ProfileFleet(DelayTable(np.ones((4, 2)), 2), LoadModel()))
    fleet.invoke([call(0, 0), call(0, 1)])
    fleet.begin_segment()
    arrival = fleet.next(None)
    assert arrival is not None
    assert arrival.round == -1
