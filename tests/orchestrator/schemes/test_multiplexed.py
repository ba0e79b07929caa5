"""`m-sgc`: the example of its docstring, the exact condition, loads, and what it must not tolerate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.codes import Code, make_code
from gradmux.orchestrator.schemes.scheme import BoolArray, Key
from tests.orchestrator.schemes.playing import Play, loads, make


def test_by_hand() -> None:
    play = Play(make("m-sgc", 2, 1, burst=1, window=2, max_stragglers=1))
    assert play.scheme.chunk_sizes.tolist() == pytest.approx([1 / 3] * 3)
    assert (play.scheme.delay, play.scheme.rounds) == (1, 2)
    assert play.round(late=[1]) == ()
    play.start()
    assert {key: task.chunks for key, task in play.tasks.items() if key.round == 1} == {
        (1, 0, 1): (2,),
        (1, 1, 1): (1,),
    }
    play.answer([1])
    assert play.scheme.wanted(1) == (0,)
    play.answer([0])
    assert play.end() == (0,)
    assert list(play.decoded[0].weights) == [Key(0, 0, 0), Key(1, 1, 1), Key(1, 0, 1)]


def test_by_hand_with_nobody_late() -> None:
    play = Play(make("m-sgc", 2, 1, burst=1, window=2, max_stragglers=1))
    play.round()
    play.start()
    assert [play.tasks[Key(1, worker, 1)].chunks for worker in range(2)] == [(2,), (2,)]
    play.answer([1])
    assert play.end() == (0,)
    assert set(play.decoded[0].weights) == {Key(0, 0, 0), Key(0, 1, 0), Key(1, 1, 1)}


def test_known_load_of_the_paper() -> None:
    """n = 256, (B, W, lambda) = (1, 2, 27): L = 0.0075431."""
    scheme = make("m-sgc", 256, 2, burst=1, window=2, max_stragglers=27, code="cyclic")
    assert loads(scheme, 0) == pytest.approx([0.0075431 / 2] * 256, abs=5e-8)
    assert loads(scheme, 1) == pytest.approx([0.0075431] * 256, abs=5e-8)


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.data())
def test_loads_are_the_papers(workers: int, burst: int, more: int, data: st.DataObject) -> None:
    """In every full round; the first rounds carry fewer slots and less load."""
    window = burst + more
    most = data.draw(st.integers(0, workers))
    code = data.draw(st.sampled_from(["fractional", "cyclic"]))
    if most == workers:
        load = (window - 1 + burst) / (workers * (window - 1))
    elif code == "cyclic":
        load = (most + 1) * (window - 1 + burst) / (workers * (burst + (window - 1) * (most + 1)))
    else:
        share = 1 / (workers // (most + 1))
        load = (window - 1 + burst) * share / (burst + workers * (window - 1) * share)
    jobs = window + burst
    scheme = make("m-sgc", workers, jobs, burst=burst, window=window, max_stragglers=most, code=code)
    play, slots = Play(scheme), window - 1 + burst
    for t in range(scheme.rounds):
        invoked = play.start()
        sums = [sum(play.tasks[key].load(scheme.chunk_sizes) for key in play.keys(t, worker)) for worker in invoked]
        served = [slot for slot in range(slots) if 0 <= t - slot < jobs]
        busy = [slot for slot in served if slot < window - 1 or most < workers]
        assert sums == pytest.approx([load * len(busy) / slots] * (workers if busy else 0))
        play.answer(invoked)
        play.end()


def holds(late: BoolArray, burst: int, window: int, code: Code) -> bool:
    """The exact condition of one job; `late` is (slots, workers), slots 0 .. W-2+B.

    Every worker straggles at most B times, and for each b group b decodes without the workers that straggle at slot
    W-1+b or have more than b failures before it.
    """
    few = bool((late.sum(axis=0) <= burst).all())
    before = [late[: window - 1 + b].sum(axis=0) > b for b in range(burst)]
    return few and all(code.draw(0, b).covers(~(late[window - 1 + b] | before[b])) for b in range(burst))


@settings(max_examples=300)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["fractional", "cyclic"]), st.data())
def test_a_job_decodes_in_time_exactly_under_the_condition(
    workers: int, burst: int, more: int, kind: str, data: st.DataObject
) -> None:
    window, most = burst + more, data.draw(st.integers(0, workers - 1))
    slots = window - 1 + burst
    late = np.array(data.draw(st.lists(st.lists(st.sampled_from([False, False, True]), min_size=workers,
                    max_size=workers), min_size=slots, max_size=slots)))  # fmt: skip
    scheme = make("m-sgc", workers, 1, burst=burst, window=window, max_stragglers=most, code=kind)
    play, code, decoded = Play(scheme), make_code(kind, workers, most, seed=0), False
    for t in range(slots):
        invoked = play.start()
        play.answer(worker for worker in invoked if not late[t, worker])
        # May the next round start? Exactly if nobody straggling from now on would save the job.
        rest = late.copy()
        rest[t + 1 :] = False
        assert scheme.may_start(t + 1) == holds(rest, burst, window, code)
        decoded = scheme.decodable(0)
        scheme.end_round(t)
    assert decoded == holds(late, burst, window, code)


@pytest.mark.parametrize("code", ["fractional", "cyclic"])
@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_burst_of_b_plus_1_fails(code: str, most: int) -> None:
    """Worker 0 straggles in B + 1 rounds in a row: (B, W) = (2, 3)."""
    play = Play(make("m-sgc", 4, 3, burst=2, window=3, max_stragglers=most, code=code))
    play.round(late=[0])
    play.round(late=[0])
    play.start()
    play.answer([1, 2, 3])
    assert not play.scheme.may_start(3)
    assert 0 in play.scheme.wanted(2)
    play.answer([0])
    assert play.scheme.may_start(3)


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_lambda_plus_1_stragglers_fail_on_cyclic_codes(most: int) -> None:
    play = Play(make("m-sgc", 4, 3, burst=1, window=2, max_stragglers=most, code="cyclic"))
    play.start()
    play.answer(range(most + 1, 4))
    assert not play.scheme.may_start(1)
    play.answer([0])
    assert play.scheme.may_start(1)


def test_fractional_codes_fail_without_a_whole_group_only() -> None:
    play = Play(make("m-sgc", 9, 2, burst=1, window=2, max_stragglers=2))
    play.round()
    play.start()
    chunk = max(chunk for task in play.tasks.values() for chunk in task.chunks)
    group = [w for w in range(9) if play.tasks[Key(1, w, 1)].chunks == (chunk,)]
    play.answer(w for w in range(9) if w not in group)
    assert not play.scheme.decodable(0)
    assert play.scheme.estimate(0).missing == pytest.approx(play.scheme.chunk_sizes[chunk])
    play.answer(group[:1])
    assert play.scheme.decodable(0)


def test_late_answers_spare_the_redo() -> None:
    play = Play(make("m-sgc", 4, 2, burst=1, window=3, max_stragglers=2))
    play.round(late=[3])
    play.answer([3], t=0)
    play.round()
    play.start()
    assert play.tasks[Key(2, 3, 2)].chunks != play.tasks[Key(0, 3, 0)].chunks
    play.answer([0, 1, 2, 3])
    assert play.end() == (0,)


def test_lambda_equal_to_n_has_no_shared_part() -> None:
    play = Play(make("m-sgc", 3, 1, burst=1, window=2, max_stragglers=3))
    assert play.scheme.chunk_sizes.tolist() == pytest.approx([1 / 3] * 3)
    assert play.round(late=[0, 1, 2]) == ()
    assert play.round() == (0,)
    idle = Play(make("m-sgc", 3, 1, burst=1, window=2, max_stragglers=3))
    idle.round()
    assert idle.start() == []


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"burst": 3, "window": 3, "max_stragglers": 1}, "B (burst) = 3 exceeds W - 1 = 2: use B <= 2, or W >= 4"),
        ({"burst": 1, "window": 2, "max_stragglers": -1},
         "lambda (max_stragglers) = -1 does not fit 4 workers: use 0 <= lambda <= 4"),
    ],
)  # fmt: skip
def test_constraints_say_what_fits(params: dict[str, int], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        make("m-sgc", 4, 2, **params)
    assert str(error.value) == f"m-sgc: {says}"
