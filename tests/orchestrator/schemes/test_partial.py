"""`gc-partial`: two messages in order, early ones in virtual time, and what the scheme tolerates.

The generic properties are in `test_every_scheme.py`, plain gradient descent over the loop in `test_loop.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

from gradmux.orchestrator.delays import Failures
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.schemes.scheme import Key, Task, loads_by_message
from gradmux.orchestrator.simulate import SimulationOptions, simulate
from tests.orchestrator.schemes.playing import Play, loads, make


@pytest.mark.parametrize(("workers", "private", "stragglers"), [(3, 1, 1), (5, 2, 3), (7, 3, 0)])
def test_the_load_is_the_paper_s(workers: int, private: int, stragglers: int) -> None:
    cyclic = make("gc-partial", workers, 1, private=private, stragglers=stragglers, code="cyclic")
    assert loads(cyclic, 0) == pytest.approx([(private + stragglers + 1) / ((private + 1) * workers)] * workers)
    assert len(cyclic.chunk_sizes) == (private + 1) * workers
    fractional = make("gc-partial", workers, 1, private=private, stragglers=stragglers)
    groups = workers // (stragglers + 1)
    expected = private / ((private + 1) * workers) + 1 / ((private + 1) * groups)
    assert loads(fractional, 0) == pytest.approx([expected] * workers)


def test_by_hand() -> None:
    """n = 3, m = 1, s = 1: worker 2 sends g_2 but no second message."""
    play = Play(make("gc-partial", 3, 1, private=1, stragglers=1, code="cyclic"))
    assert play.start() == [0, 1, 2]
    assert [play.tasks[Key(0, worker, 0)].chunks for worker in range(3)] == [(0,), (1,), (2,)]
    assert [play.tasks[Key(0, 0, 1)].chunks, play.tasks[Key(0, 0, 1)].message] == [(3, 4), 1]
    play.answer([0, 1])
    assert not play.scheme.decodable(0)
    assert play.scheme.wanted(0) == (2,)
    play.scheme.heard(Key(0, 2, 0))
    assert play.end() == (0,)
    assert [(key, weight) for key, weight in play.decoded[0].weights.items() if key.slot == 0] == [
        (Key(0, worker, 0), 1.0) for worker in range(3)
    ]
    assert Key(0, 2, 1) not in play.decoded[0].weights


def test_nobody_may_keep_the_first_message_and_only_s_the_second() -> None:
    play = Play(make("gc-partial", 4, 1, private=1, stragglers=1, code="cyclic"))
    play.start()
    play.answer([0, 1, 2])
    model = play.scheme.straggler_model("bursty")
    late = np.array([False, False, False, True])
    assert not model.admits(late), "worker 3 has sent nothing"
    play.scheme.heard(Key(0, 3, 0))
    assert model.admits(late)
    assert not model.admits(np.array([False, False, True, True]))


def test_without_private_chunks_it_is_gc() -> None:
    assert loads(make("gc-partial", 6, 1, private=0, stragglers=2), 0) == loads(make("gc", 6, 1, stragglers=2), 0)


def test_private_chunks_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"m \(private\) = -1 must be at least 0; 0 is plain gc"):
        make("gc-partial", 3, 1, private=-1, stragglers=1)


# --- messages in virtual time ----------------------------------------------------------------------------------------


def test_a_worker_has_done_so_much_at_each_message() -> None:
    sizes = np.array([0.5, 0.25, 0.25])
    tasks = (Task(0, (0,), (1.0,)), None, Task(0, (1, 2), (1.0, 1.0), message=1), Task(1, (2,), (1.0,), message=1))
    assert loads_by_message(tasks, sizes) == (0.5, 1.25)
    assert loads_by_message((None,), sizes) == (0.0,)


def test_messages_come_when_their_load_is_done_and_count_as_one_invocation() -> None:
    """D = 2 s at no load, 4 s per batch: half a batch done at 4 s, all of it at 6 s."""
    fleet = ProfileFleet(DelayTable(np.array([[2.0]]), 1), LoadModel(slope_s=4.0))
    slots = (Task(0, (0,), (1.0,)), Task(0, (1,), (1.0,), message=1))
    fleet.invoke([Invocation(round=0, worker=0, attempt=1, slots=slots, load=1.0, early=(0.5,))])
    early, last = fleet.next(None), fleet.next(None)
    assert early is not None
    assert last is not None
    assert (early.at_s, early.slots, early.final, early.billed_s) == (4.0, (0,), False, 0.0)
    assert (last.at_s, last.slots, last.final, last.billed_s) == (6.0, (1,), True, 6.0)
    assert (fleet.peak, fleet.busy_s) == (1, 6.0)
    assert fleet.next(None) is None


def test_a_failed_invocation_sends_no_early_message() -> None:
    fleet = ProfileFleet(DelayTable(np.array([[np.inf, 3.0]]), 2, failures=Failures(5.0)), LoadModel())
    slots = (Task(0, (0,), (1.0,)), Task(0, (1,), (1.0,), message=1))
    fleet.invoke([Invocation(round=0, worker=0, attempt=1, slots=slots, load=1.0, early=(0.5,))])
    only = fleet.next(None)
    assert only is not None
    assert (only.final, only.slots, only.at_s) == (True, (), 5.0)
    assert fleet.next(None) is None


def test_a_worker_that_computes_slowly_does_not_hold_the_round_when_its_first_message_is_in() -> None:
    """m = 1, s = 1, n = 4: L = 3/8, the first message after 1/8. All but worker 1 take 1 + 8 L s, it 1.5 s more.

    The others are done at 4 s, worker 1's first message is in at 3.5 s; its second, at 5.5 s, is not waited for.
    """
    delays = np.array([[1.0, 2.5, 1.0, 1.0]])
    params: dict[str, int | float | str] = {"private": 1, "stragglers": 1, "code": "cyclic"}
    options = SimulationOptions(jobs=1, load=LoadModel(slope_s=8.0))
    partial = simulate(delays, "gc-partial", params, options)
    assert partial.load == pytest.approx(3 / 8)
    assert partial.total_s == pytest.approx(4.0)
    assert partial.billed_s == pytest.approx(3 * 4.0 + 5.5)
    slower = simulate(delays + np.array([0.0, 2.0, 0.0, 0.0]), "gc-partial", params, options)
    assert slower.total_s == pytest.approx(5.5), "now its first message is what the round waits for"


def test_a_straggler_s_first_message_is_late_in_its_own_measure_where_delays_are_in_proportion() -> None:
    """8 s for a whole batch: half of it is done at 4 s, however slow the worker is; a slope would say 7.5 s."""
    fleet = ProfileFleet(DelayTable(np.array([[8.0]]), 1), LoadModel(slope_s=1.0, base_load=1.0, scales=True))
    slots = (Task(0, (0,), (1.0,)), Task(0, (1,), (1.0,), message=1))
    fleet.invoke([Invocation(round=0, worker=0, attempt=1, slots=slots, load=1.0, early=(0.5,))])
    assert [arrival.at_s for arrival in (fleet.next(None), fleet.next(None)) if arrival is not None] == [4.0, 8.0]
