"""What `auto` chooses over delays that leave no doubt, when it looks again, and where its segments end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from msgspec import structs

from gradmux.orchestrator.auto import AutoJob, Choice, Pilot, plain, side_by_side
from gradmux.orchestrator.auto.decide import Situation, decide
from gradmux.orchestrator.auto.measured import measured, pooled
from gradmux.orchestrator.auto.pace import Pace
from gradmux.orchestrator.auto.simulated import AutoSimulation, job_of, simulate_auto
from gradmux.orchestrator.closing import Closing
from gradmux.orchestrator.delays import DelayProfile
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Limits, limits_of
from gradmux.orchestrator.record import Decoded, Header, Heard, Line, RoundLine, Sent
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.simulate import SimulationOptions, simulate

PLAIN = plain(16)
SLOPE_S = 0.1


def window(workers: int, rounds: int = 12, *, late: float = 0.0, load: float = 1 / 16) -> DelayProfile:
    """0.1 s each; a share `late` of the answers takes a second more."""
    rng = np.random.default_rng(3)
    return DelayProfile(0.1 + 1.0 * (rng.random((rounds, workers)) < late), load=load)


def job(models: int, concurrency: int, steps: int = 100) -> AutoJob:
    return AutoJob(models=models, steps=steps, workers=16, concurrency=concurrency, hour_usd=math.inf)


def situation(
    seen: DelayProfile, slope_s: float | None = SLOPE_S, before: Choice = PLAIN, took: float | None = None
) -> Situation:
    return Situation([seen], slope_s, before, left=100, took=took)


# --- one choice --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("models", "concurrency"), [(1, 16), (4, 64)])
def test_a_heavy_tail_speaks_for_redundancy(models: int, concurrency: int) -> None:
    choice = decide(job(models, concurrency), situation(window(16, late=0.1)))
    assert choice.scheme in ("gc", "pipeline", "backup", "pipeline-auto")
    assert choice.predicted_s is not None
    assert choice.uncoded_s is not None
    assert choice.predicted_s < choice.uncoded_s / 2


def test_without_stragglers_one_model_stays_uncoded() -> None:
    choice = decide(job(1, 16), situation(window(16), slope_s=1.0))
    assert (choice.scheme, choice.workers) == ("uncoded", 16)


def test_a_short_profile_decides_nothing() -> None:
    choice = decide(job(1, 16), situation(window(16, rounds=4, late=0.1)))
    assert (choice.scheme, choice.workers) == ("uncoded", 16)
    assert "too few" in choice.reason


def test_when_stragglers_are_gone_it_goes_back() -> None:
    before = decide(job(1, 16), situation(window(16, late=0.1), slope_s=1.0))
    assert before.scheme != "uncoded"
    after = decide(job(1, 16), situation(window(16), slope_s=1.0, before=before, took=1.1))
    assert after.scheme == "uncoded"


def test_what_turned_out_slower_than_uncoded_is_given_up() -> None:
    seen = window(16, late=0.1)
    before = decide(job(1, 16), situation(seen))
    after = decide(job(1, 16), situation(seen, before=before, took=5.0))
    assert after.scheme == "uncoded"
    assert "more than uncoded" in after.reason
    again = decide(job(1, 16), replace(situation(seen), given_up=(before.key,)))
    assert again.key != before.key


def test_a_gain_that_is_less_than_the_wait_for_all_answers_changes_nothing() -> None:
    seen = window(16, late=0.1)
    slow = Choice("gc", {"stragglers": 1, "code": "fractional"}, 16, "")
    many = decide(job(1, 16), replace(situation(seen, before=slow, took=0.5), left=100))
    few = decide(job(1, 16), replace(situation(seen, before=slow, took=0.5), left=2))
    assert many.key != slow.key
    assert few.key == slow.key


def test_without_a_slope_no_worker_gets_a_larger_load() -> None:
    choice = decide(job(4, 64), situation(window(16, late=0.1), slope_s=None))
    assert choice.scheme in ("uncoded", "backup", "pipeline")
    assert choice.params.get("stragglers", 0) == 0


# --- what it really took -------------------------------------------------------------------------------------------

CODED = Choice("gc", {"stragglers": 1, "code": "fractional"}, 16, "")


@pytest.mark.parametrize(("again_s", "winner"), [(0.3, PLAIN), (0.9, CODED)], ids=["still fast", "slower by now"])
def test_a_choice_that_is_slower_than_uncoded_was_is_held_against_it_once_more(again_s: float, winner: Choice) -> None:
    pace = Pace(uncoded=0.3)
    assert pace.judge(CODED, 0.32, PLAIN) is None, "few rounds were measured"
    assert pace.judge(CODED, None, PLAIN) is None, "nothing was decoded"
    back = pace.judge(CODED, 0.6, PLAIN)
    assert back is not None
    assert (back.key, "measures uncoded again" in back.reason) == (PLAIN.key, True)
    judged = pace.judge(back, again_s, PLAIN)
    assert judged is not None
    assert judged.key == winner.key
    assert pace.settled == (winner is PLAIN)
    assert pace.judge(judged, 0.6, PLAIN) is None


def play_crowded(pilot: Pilot, fast_s: float = 1.5, slow_s: float = 3.0) -> list[Choice]:
    """Of each step, under what it was done: one worker in 16 is late, and whatever is not uncoded makes all slower."""
    under: list[Choice] = []
    while len(under) < pilot.job.steps:
        segment = pilot.next_segment((len(under),))
        choice, lines = segment.choice, [Header("", "", {}, segment.choice.workers, 1, pilot.job.steps, 0, {}, {})]
        ended, began, at_s = False, len(under), 0.0
        while not ended and len(under) < segment.end:
            index = len(under) - began
            delays_s = [1.5 if worker == len(under) % 16 else 0.5 for worker in range(choice.workers)]
            end_s = at_s + (fast_s if choice.scheme == "uncoded" else slow_s)
            decoded = Decoded(len(under), 0, len(under), end_s, 1, 0, 0.0, 1.0, 0.0, 0.0, 1, 0, 0.0)
            lines.append(structs.replace(line(index, at_s, delays_s, 1 / choice.workers, end_s), decoded=(decoded,)))
            under.append(choice)
            at_s, decided = end_s, pilot.watch(lines)
            ended = decided is not None and decided.key != choice.key
        pilot.learn(lines)
    return under


def test_where_everything_but_uncoded_makes_all_answers_slower_it_soon_stays_uncoded() -> None:
    pilot = Pilot(job(1, 16, 100))
    under = play_crowded(pilot)
    others = [choice for choice in under if choice.scheme != "uncoded"]
    assert others, "the delays promised a gain"
    assert len(others) <= 17, "one look comes after a sixth of the run"
    assert under[-1].key == PLAIN.key
    assert pilot.pace.settled


# --- what was measured ---------------------------------------------------------------------------------------------


def recorded(*rounds: list[tuple[float, bool]]) -> list[Line]:
    """A record in which each worker of each round took so long, and was cold, or not."""
    lines: list[Line] = [Header("r", "uncoded", {}, len(rounds[0]), 1, len(rounds), 0, {}, {})]
    for index, row in enumerate(rounds):
        workers = tuple(range(len(row)))
        heard = tuple(
            Heard(seconds, index, worker, 1, "ok", (0,), (), True, seconds, seconds, cold, "")
            for worker, (seconds, cold) in enumerate(row)
        )
        sent = (Sent(0.0, index, 1, workers, (0.25,) * len(row)),)
        lines.append(RoundLine(index, 0.0, max(each.at_s for each in heard), 0.25, (), False, 0, sent, heard))
    return lines


def test_cold_starts_are_taken_for_no_stragglers() -> None:
    """A round that mostly started workers tells nothing; one worker that was started in another is like the others."""
    warm, cold = (1.0, False), (9.0, True)
    found = measured(recorded([cold, cold, cold, warm], [warm, cold, (3.0, False), (1.5, False)]), 4)
    assert found is not None
    assert found.delays_s.tolist() == [[1.0, 1.5, 3.0, 1.5]]
    assert measured(recorded([cold, cold, cold, warm]), 4) is None


def test_narrow_rounds_are_laid_side_by_side_at_the_load_of_uncoded() -> None:
    narrow = DelayProfile(np.array([[0.3, 0.4], [0.5, 0.6]]), load=0.5)
    wide = pooled([window(4, rounds=1, load=0.25), narrow], 4, slope_s=0.4)
    assert wide.delays_s[1:].tolist() == [pytest.approx([0.2, 0.3, 0.4, 0.5]), pytest.approx([0.4, 0.5, 0.2, 0.3])]


def line(index: int, start_s: float, delays_s: Sequence[float | None], load: float, end_s: float) -> RoundLine:
    """A round of so many workers; None has not answered."""
    workers = tuple(range(len(delays_s)))
    heard = tuple(
        Heard(start_s + each, index, worker, 1, "ok", (0,), (), True, 0.0, 0.0, False, "")
        for worker, each in enumerate(delays_s)
        if each is not None
    )
    return RoundLine(
        index, start_s, end_s, load, (), False, 0, (Sent(start_s, index, 1, workers, (load,) * len(workers)),), heard
    )


def test_an_answer_that_is_still_awaited_counts_as_at_least_so_slow() -> None:
    lines: list[Line] = [
        Header("", "gc", {}, 3, 1, 9, 0, {}, {}),
        line(0, 0.0, [1.0, 1.0, 9.0], 0.5, 9.0),
        line(1, 9.0, [1.0, 2.0, None], 0.5, 11.0),
        line(2, 11.0, [1.0, 1.0, 1.0], 0.5, 13.0),
    ]
    seen = measured(lines, 3)
    assert seen is not None
    assert seen.delays_s[1].tolist() == [1.0, 2.0, 9.0], "the only answer that is known to take more than 4 s"


def test_rounds_of_all_sizes_are_taken_as_single_answers_at_one_load() -> None:
    lines: list[Line] = [
        Header("", "pipeline-auto", {}, 4, 1, 9, 0, {}, {}),
        line(0, 0.0, [1.5, 1.5, 1.5], 0.5, 2.0),
        line(1, 2.0, [2.0], 1.0, 4.0),
        line(2, 4.0, [1.5, 2.5, 1.5, 1.5], 0.5, 7.0),
    ]
    seen = measured(lines, 4, slope_s=1.0)
    assert seen is not None
    assert seen.load == 0.5
    assert seen.delays_s.tolist() == [[1.5, 1.5, 1.5, 1.5], [1.5, 2.5, 1.5, 1.5]]


# --- a whole run ---------------------------------------------------------------------------------------------------


def calm(rows: int) -> FloatArray:
    return np.random.default_rng(1).uniform(1.0, 1.05, (rows, 16))


def heavy(rows: int) -> FloatArray:
    return calm(rows) + 8.0 * (np.random.default_rng(2).random((rows, 16)) < 0.1)


def uncoded_s(delays_s: FloatArray, of: AutoJob, slope_s: float) -> tuple[float, ...]:
    """By gradient."""
    options = SimulationOptions(
        of.models * of.steps, of.models, limits=Limits(of.concurrency), load=LoadModel(slope_s), workers=of.workers
    )
    return simulate(delays_s, "uncoded", {}, options).durations


def gradients(found: AutoSimulation) -> list[tuple[int, int]]:
    return [(each.model, each.step) for line in found.whole.lines for each in line.decoded]


CONDITIONS = {"calm": calm(200), "heavy": heavy(200), "calm, then heavy": np.concatenate([calm(60), heavy(140)])}


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("of", [job(1, 16, 60), job(3, 48, 20), job(3, 16, 20)], ids=["M=1", "M=3", "M=3, tight"])
def test_after_measuring_it_is_no_slower_than_uncoded_and_no_gradient_is_lost(name: str, of: AutoJob) -> None:
    delays_s = CONDITIONS[name]
    found = simulate_auto(delays_s, of, LoadModel(5.0))
    measured_jobs = of.models * max(segment.end for segment in found.segments if segment.measures)
    later_s = sum(uncoded_s(delays_s, of, 5.0)[measured_jobs:])
    assert found.whole.total_s - found.measured_s <= later_s + 1e-9
    steps = {(model, step) for model in range(of.models) for step in range(of.steps)}

    assert sorted(gradients(found)) == sorted(steps)
    assert found.segments[-1].end == of.steps


def test_stragglers_that_come_in_mid_run_are_noticed() -> None:
    of = job(1, 16, 100)
    found = simulate_auto(np.concatenate([calm(40), heavy(60)]), of, LoadModel(5.0))
    chosen = [segment for segment in found.segments if not segment.measures]
    assert chosen[0].choice.scheme == "uncoded"
    assert chosen[1].choice.scheme != "uncoded"
    assert 40 < chosen[0].end <= 80
    assert found.whole.total_s < 0.8 * sum(uncoded_s(np.concatenate([calm(40), heavy(60)]), of, 5.0))


def test_what_is_confirmed_goes_on_without_a_new_segment() -> None:
    found = simulate_auto(heavy(200), job(3, 48, 60), LoadModel(5.0))
    changes = sum(one.key != other.key for one, other in pairwise(found.looks))
    assert len(found.looks) > 1 + changes, "something was confirmed"
    assert len(found.segments) == 3 + changes


def test_it_starts_uncoded_on_all_workers_then_on_a_quarter() -> None:
    one, many = Pilot(job(1, 16)), Pilot(job(3, 48))
    assert one.next_segment((0,)).choice.key == PLAIN.key
    assert many.next_segment((0, 0, 0)).choice.key == side_by_side(16).key
    assert one.next_segment((8,)).choice.key == plain(4).key


def test_models_that_were_ahead_are_caught_up_with_first() -> None:
    segment = Pilot(job(2, 64)).next_segment((3, 5))
    assert (segment.choice.scheme, segment.end) == ("pipeline", 5)


def test_a_simulated_run_closes_rounds_as_it_is_told() -> None:
    """Both limits reach the job that is simulated."""
    limits = Limits(concurrency=32, in_flight_cap=0.25, harvest_late=False)
    job = job_of(SimulationOptions(jobs=8, models=4, limits=limits), columns=16)
    assert job.closing == Closing(in_flight_cap=0.25, harvest_late=False)
    assert limits_of(job.closing, job.concurrency) == limits
