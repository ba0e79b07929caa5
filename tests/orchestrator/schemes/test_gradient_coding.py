"""`uncoded` and `gc`: the examples of their docstrings, loads, and what they must not tolerate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.scheme import Key
from tests.orchestrator.schemes.playing import Play, loads, make, mask


def test_uncoded_by_hand() -> None:
    play = Play(make("uncoded", 3, 1))
    play.start()
    assert [play.tasks[Key(0, worker, 0)].chunks for worker in range(3)] == [(0,), (1,), (2,)]
    play.answer([1, 0])
    assert not play.scheme.may_start(1)
    assert play.scheme.wanted(0) == (2,)
    play.answer([2])
    assert play.end() == (0,)
    assert play.decoded[0].weights == {Key(0, worker, 0): 1.0 for worker in range(3)}
    assert play.decoded[0].amplification == 1.0


def test_gc_by_hand() -> None:
    """n = 4, s = 1, with a seed that draws the groups {0, 2} and {1, 3} for job 0."""
    for seed in range(100):
        play = Play(make("gc", 4, 1, seed=seed, stragglers=1))
        play.start()
        if [play.tasks[Key(0, worker, 0)].chunks for worker in range(4)] == [(0,), (1,), (0,), (1,)]:
            break
    play.answer([2, 1])
    assert play.end() == (0,)
    assert play.decoded[0].weights == {Key(0, 2, 0): 1.0, Key(0, 1, 0): 1.0}


def test_groups_change_from_job_to_job() -> None:
    play = Play(make("gc", 12, 2, stragglers=2))
    chunks = []
    for t in range(2):
        play.start()
        chunks.append([play.tasks[Key(t, worker, 0)].chunks for worker in range(12)])
        play.answer(range(12))
        play.end()
    assert chunks[0] != chunks[1]


def test_cyclic_does_not_decode_with_one_straggler_too_many() -> None:
    play = Play(make("gc", 6, 1, stragglers=2, code="cyclic"))
    play.start()
    play.answer([5, 0, 3])
    assert not play.scheme.decodable(0)
    assert not play.scheme.may_start(1)
    assert set(play.scheme.wanted(0)) == {1, 2, 4}
    assert 0 < play.scheme.estimate(0).missing < 1
    play.answer([1])
    assert play.end() == (0,)


def test_fractional_decodes_beyond_s_but_never_without_a_whole_group() -> None:
    scheme = make("gc", 9, 1, stragglers=2)
    play = Play(scheme)
    play.start()
    group = [w for w in range(9) if play.tasks[Key(0, w, 0)].chunks == (0,)]
    others = [w for w in range(9) if w not in group]
    play.answer(others)
    assert not scheme.decodable(0)
    assert scheme.wanted(0) == tuple(group)
    assert scheme.estimate(0).missing == pytest.approx(1 / 3)
    assert scheme.straggler_model("either").admits(mask(9, others[1:3] + group[:2]))
    assert not scheme.straggler_model("either").admits(mask(9, group))
    assert not scheme.straggler_model("bursty").admits(mask(9, range(3)))


@given(st.integers(1, 30), st.data())
def test_loads_are_the_papers(workers: int, data: st.DataObject) -> None:
    stragglers = data.draw(st.integers(0, workers - 1))
    cyclic = make("gc", workers, 1, stragglers=stragglers, code="cyclic")
    assert loads(cyclic, 0) == pytest.approx([(stragglers + 1) / workers] * workers)
    fractional = make("gc", workers, 1, stragglers=stragglers)
    assert loads(fractional, 0) == pytest.approx([1 / (workers // (stragglers + 1))] * workers)
    if workers % (stragglers + 1) == 0:
        assert loads(fractional, 0) == pytest.approx([(stragglers + 1) / workers] * workers)
    assert loads(make("uncoded", workers, 1), 0) == pytest.approx([1 / workers] * workers)


@pytest.mark.parametrize("stragglers", [-1, 4, 9])
def test_s_must_fit_n(stragglers: int) -> None:
    with pytest.raises(ConfigError, match=rf"s \(stragglers\) = {stragglers} does not fit 4 workers: use 0 <= s <= 3"):
        make("gc", 4, 1, stragglers=stragglers)


def test_a_closed_round_holds_nothing_up() -> None:
    """After an estimate the run goes on, although the job never became decodable."""
    play = Play(make("gc", 4, 2, stragglers=1, code="cyclic"))
    play.start()
    play.answer([0])
    assert not play.scheme.may_start(1)
    assert play.scheme.estimate(0).missing > 0
    assert play.scheme.end_round(0) == (0,)
    assert not play.scheme.decodable(0)
    assert play.scheme.may_start(1)
    assert play.round() == (1,)
