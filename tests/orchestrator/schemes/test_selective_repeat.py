"""`sr-sgc`: the example of its docstring, what it must not tolerate, loads and constraints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context, Key
from gradmux.orchestrator.schemes.stragglers import Bursty, PerRound
from tests.orchestrator.schemes.exploring import explore
from tests.orchestrator.schemes.playing import Play, loads, make


def jobs_of(play: Play) -> dict[int, int]:
    """Worker -> job in the open round."""
    return {key.worker: task.job for key, task in play.tasks.items() if key.round == play.t}


def test_by_hand() -> None:
    play = Play(make("sr-sgc", 4, 2, burst=1, window=2, max_stragglers=2, code="cyclic"))
    assert (play.scheme.delay, play.scheme.rounds) == (1, 3)
    assert play.round(late=[1, 2]) == ()
    assert not play.scheme.decodable(0)
    play.start()
    assert jobs_of(play) == {0: 1, 1: 0, 2: 1, 3: 1}
    play.answer([2, 0])
    assert play.scheme.wanted(1) == (1, 3)
    assert not play.scheme.may_start(2)
    play.answer([1, 3])
    assert play.scheme.may_start(2)
    assert play.end() == (0,)
    assert list(play.decoded[0].weights) == [Key(0, 0, 0), Key(1, 1, 0), Key(0, 3, 0)]
    assert play.scheme.decodable(1)
    assert play.start() == []
    assert play.scheme.may_start(3)
    assert play.end() == (1,)


def test_fractional_repeats_one_worker_per_uncovered_group() -> None:
    play = Play(make("sr-sgc", 12, 3, burst=1, window=2, max_stragglers=6))
    assert play.scheme.chunk_sizes.tolist() == pytest.approx([1 / 3] * 3)
    play.start()
    groups = {chunk: [w for w in range(12) if play.tasks[Key(0, w, 0)].chunks == (chunk,)] for chunk in range(3)}
    play.answer(groups[0] + groups[1][1:])
    play.scheme.end_round(0)
    play.start()
    assert {w for w, job in jobs_of(play).items() if job == 0} == {groups[2][0]}
    play.answer(range(12))
    assert play.end() == (0,)
    assert Key(1, groups[2][0], 0) in play.decoded[0].weights


def test_a_late_answer_saves_the_repeat() -> None:
    """Heard before round 1 goes out, it leaves nothing to repeat."""
    play = Play(make("sr-sgc", 4, 2, burst=1, window=2, max_stragglers=2, code="cyclic"))
    play.round(late=[1, 2])
    play.answer([2], t=0)
    play.start()
    assert jobs_of(play) == dict.fromkeys(range(4), 1)


def test_a_round_waits_for_all_but_lambda_answers() -> None:
    """Repeats alone could make up for more, but would take all workers from the next job."""
    play = Play(make("sr-sgc", 8, 4, burst=2, window=3, max_stragglers=3, code="cyclic"))
    play.start()
    play.answer(range(4))
    assert not play.scheme.may_start(1)
    play.answer([4])
    assert play.scheme.may_start(1)


def test_the_tail_invokes_repeaters_alone() -> None:
    play = Play(make("sr-sgc", 4, 1, burst=1, window=2, max_stragglers=2, code="cyclic"))
    play.round(late=[1, 3])
    assert play.start() == [1]
    play.answer([1])
    assert play.end() == (0,)


@pytest.mark.parametrize("code", ["fractional", "cyclic"])
@pytest.mark.parametrize(("burst", "window", "most"), [(1, 2, 2), (1, 3, 3), (2, 3, 2)])
def test_larger_models_break_it(code: str, burst: int, window: int, most: int) -> None:
    """At these parameters s has no slack: lambda + 1, or bursts of B + 1, hold a pattern that cannot be decoded."""

    def broken(larger: Bursty) -> bool:
        scheme = make("sr-sgc", 4, burst + 1, burst=burst, window=window, max_stragglers=most, code=code)
        try:
            explore(scheme, larger)
        except AssertionError:
            return True
        return False

    assert not broken(Bursty(burst, window, most, 4))
    assert broken(Bursty(burst, window, most + 1, 4))
    assert broken(Bursty(burst + 1, window + 1, most, 4))


def test_one_more_per_round_breaks_the_cyclic_code() -> None:
    """s = 1 in every round is tolerated for ever, 2 in every round are not."""
    params: dict[str, int | str] = {"burst": 1, "window": 2, "max_stragglers": 2, "code": "cyclic"}
    explore(build_scheme("sr-sgc", params, Context(4, 3)), PerRound(1))
    with pytest.raises(AssertionError):
        explore(build_scheme("sr-sgc", params, Context(4, 3)), PerRound(2))


@given(st.integers(2, 24), st.integers(1, 3), st.integers(1, 3), st.data())
def test_loads_are_the_papers(workers: int, burst: int, times: int, data: st.DataObject) -> None:
    window = burst * times + 1
    most = data.draw(st.integers(0, workers))
    s = -(-burst * most // (window - 1 + burst))
    params = {"burst": burst, "window": window, "max_stragglers": most}
    assert loads(make("sr-sgc", workers, 1, **params, code="cyclic"), 0) == pytest.approx([(s + 1) / workers] * workers)
    assert loads(make("sr-sgc", workers, 1, **params), 0) == pytest.approx([1 / (workers // (s + 1))] * workers)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"burst": 3, "window": 5, "max_stragglers": 1},
         "B (burst) = 3 does not divide W - 1 = 4: "
         "with B = 3 use W (window) = 4 or 7, or with W = 5 use B = 1, 2 or 4"),
        ({"burst": 2, "window": 2, "max_stragglers": 1}, "B (burst) = 2 exceeds W - 1 = 1: use B <= 1, or W >= 3"),
        ({"burst": 0, "window": 3, "max_stragglers": 1}, "B (burst) = 0 is too small: use 1 <= B <= W - 1 = 2"),
        ({"burst": 1, "window": 1, "max_stragglers": 1}, "W (window) = 1 is too small: use W >= 2, for instance W = 2"),
        ({"burst": 1, "window": 2, "max_stragglers": 5},
         "lambda (max_stragglers) = 5 does not fit 4 workers: use 0 <= lambda <= 4"),
    ],
)  # fmt: skip
def test_constraints_say_what_fits(params: dict[str, int], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        make("sr-sgc", 4, 2, **params)
    assert str(error.value) == f"sr-sgc: {says}"
