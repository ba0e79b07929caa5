"""A run's record tells its delay profile: first attempts, whole rounds, and no failure taken for a fast answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from gradmux.orchestrator.delays import from_lines, from_record, load_profile
from gradmux.orchestrator.delays.generators import generate
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.record import EndLine, FileRecord, Header, Heard, Line, RoundLine, Sent
from gradmux.orchestrator.simulate import SimulationOptions, simulate

HEADER = Header("r", "uncoded", {}, 2, 1, 10, 0, {}, {})


def answer(
    at_s: float, round_: int, worker: int, *, attempt: int = 1, outcome: str = "ok", cold: bool = False
) -> Heard:
    return Heard(at_s, round_, worker, attempt, outcome, (0,), (), True, 0.0, 0.0, cold, "")


def round_line(
    index: int, start_s: float, arrivals: Sequence[Heard], *, workers: tuple[int, ...] = (0, 1), load: float = 0.5
) -> RoundLine:
    first = Sent(start_s, index, 1, workers, (load,) * len(workers))
    end_s = max([start_s, *(item.at_s for item in arrivals)])
    return RoundLine(index, start_s, end_s, load, (), False, 0, (first,), tuple(arrivals))


def test_delays_run_from_the_dispatch_to_the_answer() -> None:
    lines: list[Line] = [
        HEADER,
        round_line(0, 10.0, [answer(11.0, 0, 0, cold=True), answer(13.0, 0, 1)]),
        round_line(1, 13.0, [answer(13.5, 1, 1), answer(15.0, 1, 0)]),
    ]
    profile = from_lines(lines, name="r")
    assert profile.delays_s.tolist() == [[1.0, 3.0], [2.0, 0.5]]
    assert profile.cold.tolist() == [[True, False], [False, False]]
    assert (profile.load, profile.name) == (0.5, "r")


def test_an_answer_that_comes_in_a_later_round_belongs_to_its_own() -> None:
    lines: list[Line] = [
        HEADER,
        round_line(0, 0.0, [answer(1.0, 0, 0)]),
        round_line(1, 1.0, [answer(2.0, 1, 0), answer(2.5, 1, 1), answer(9.0, 0, 1)]),
    ]
    assert from_lines(lines).delays_s.tolist() == [[1.0, 9.0], [1.0, 1.5]]


def test_what_comes_after_the_last_round_counts() -> None:
    lines: list[Line] = [
        HEADER,
        round_line(0, 0.0, [answer(1.0, 0, 0)]),
        EndLine("done", 1.0, arrivals=(answer(4.0, 0, 1),)),
    ]
    assert from_lines(lines).delays_s.tolist() == [[1.0, 4.0]]


def test_failures_are_never_fast_and_second_attempts_are_no_first_ones() -> None:
    lines: list[Line] = [
        HEADER,
        round_line(0, 0.0, [answer(0.01, 0, 0, outcome="crashed"), answer(1.0, 0, 1), answer(0.5, 0, 0, attempt=2)]),
    ]
    profile = from_lines(lines)
    assert profile.delays_s.tolist() == [[math.inf, 1.0]]
    assert profile.failed.tolist() == [[True, False]]


def test_early_messages_of_a_running_invocation_do_not_end_it() -> None:
    early = structs.replace(answer(0.5, 0, 0), final=False)
    lines: list[Line] = [HEADER, round_line(0, 0.0, [early, answer(1.0, 0, 1), answer(2.0, 0, 0)])]
    assert from_lines(lines).delays_s.tolist() == [[2.0, 1.0]]


def test_rounds_in_which_some_had_nothing_to_do_are_left_out() -> None:
    lines: list[Line] = [
        HEADER,
        round_line(0, 0.0, [answer(0.1, 0, 0)], workers=(0,)),
        round_line(1, 1.0, [answer(2.0, 1, 0), answer(3.0, 1, 1)]),
    ]
    assert from_lines(lines).delays_s.tolist() == [[1.0, 2.0]]


def test_an_answer_that_may_still_come_is_no_failure_and_one_overdue_is() -> None:
    lines: list[Line] = [
        HEADER,
        round_line(0, 0.0, [answer(1.0, 0, 0)]),
        round_line(1, 1.0, [answer(2.0, 1, 0), answer(5.0, 1, 1)]),
        round_line(2, 5.0, [answer(6.0, 2, 0)]),
    ]
    # Worker 1 was awaited for 6 s in round 0 and for 1 s in round 2; the longest answer took 4 s.
    assert from_lines(lines).delays_s.tolist() == [[1.0, math.inf], [1.0, 4.0]]


def test_a_resumed_run_has_two_lives_with_clocks_of_their_own() -> None:
    lines: list[Line] = [
        HEADER,
        round_line(0, 100.0, [answer(101.0, 0, 0), answer(102.0, 0, 1)]),
        structs.replace(HEADER, epoch=1),
        round_line(0, 0.0, [answer(3.0, 0, 0), answer(4.0, 0, 1)]),
    ]
    assert from_lines(lines).delays_s.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_answers_to_other_loads_are_shifted_by_a_known_slope() -> None:
    lines: list[Line] = [HEADER]
    for index, load in enumerate((0.25, 0.5, 0.5)):
        arrivals = [answer(10.0 * index + 1.0 + load, index, worker) for worker in (0, 1)]
        lines.append(round_line(index, 10.0 * index, arrivals, load=load))
    assert from_lines(lines).delays_s[0].tolist() == [1.25, 1.25]
    shifted = from_lines(lines, slope_s=1.0)
    assert (shifted.delays_s == 1.5).all()
    assert (shifted.load, shifted.slope_s) == (0.5, 1.0)


@pytest.mark.parametrize(
    "lines",
    [[], [HEADER], [HEADER, round_line(0, 0.0, [])], [HEADER, round_line(0, 0.0, [answer(1.0, 0, 0)], workers=(0,))]],
)
def test_a_record_without_a_whole_round_says_so(lines: list[Line]) -> None:
    with pytest.raises(ConfigError, match="no round in which every worker was invoked and answered"):
        from_lines(lines)


def test_a_record_must_begin_with_its_run() -> None:
    with pytest.raises(ConfigError, match="does not begin with"):
        from_lines([round_line(0, 0.0, [])])


def test_the_record_of_a_simulated_run_gives_back_the_profile_that_it_was_played_over(tmp_path: Path) -> None:
    played = generate("bursty", rounds=6, workers=8, seed=4)
    simulated = simulate(played.delays_s, "uncoded", {}, SimulationOptions(jobs=6))
    record = FileRecord(tmp_path / "record.jsonl", sync=False)
    record.write(structs.replace(HEADER, workers=8))
    for line in simulated.lines:
        record.write(line)
    record.close()
    for read in (from_record(tmp_path / "record.jsonl"), load_profile(tmp_path / "record.jsonl")):
        assert abs(read.delays_s - played.delays_s).max() < 1e-12
        assert read.load == 1 / 8


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"kind":"nothing"}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1, is not a line of a run's record"):
        load_profile(tmp_path / "p.jsonl")
