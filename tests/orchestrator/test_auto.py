"""What `auto` chooses over delays that leave no doubt, and where its segments end."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.auto import AutoJob, Pilot, decide, measured, pooled, segment_end, uncoded
from orchestrator.delays import DelayProfile
from orchestrator.record import Header, Heard, Line, RoundLine, Sent

PLAIN = uncoded(16, "")


def window(workers: int, rounds: int = 12, *, late: float = 0.0, load: float = 1 / 16) -> DelayProfile:
    """0.1 s each; a share `late` of the answers takes a second more."""
    rng = np.random.default_rng(3)
    return DelayProfile(0.1 + 1.0 * (rng.random((rounds, workers)) < late), load=load)


def job(models: int, concurrency: int) -> AutoJob:
    return AutoJob(models=models, steps=100, workers=16, concurrency=concurrency)


@pytest.mark.parametrize(("models", "concurrency"), [(1, 16), (4, 64)])
def test_a_heavy_tail_speaks_for_redundancy(models: int, concurrency: int) -> None:
    choice = decide(job(models, concurrency), [window(16, late=0.1)], 0.1, PLAIN, None)
    assert choice.scheme in ("gc", "pipeline", "m-sgc", "backup")
    assert choice.predicted_s is not None
    assert choice.uncoded_s is not None
    assert choice.predicted_s < choice.uncoded_s / 2


def test_without_stragglers_one_model_stays_uncoded() -> None:
    choice = decide(job(1, 16), [window(16)], 1.0, PLAIN, None)
    assert (choice.scheme, choice.workers) == ("uncoded", 16)


def test_a_short_profile_decides_nothing() -> None:
    choice = decide(job(1, 16), [window(16, rounds=4, late=0.1)], 0.1, PLAIN, None)
    assert (choice.scheme, choice.workers) == ("uncoded", 16)
    assert "too few" in choice.reason


def test_when_stragglers_are_gone_it_goes_back() -> None:
    before = decide(job(1, 16), [window(16, late=0.1)], 1.0, PLAIN, None)
    assert before.scheme != "uncoded"
    assert decide(job(1, 16), [window(16)], 1.0, before, 0.09).scheme == "uncoded"


def test_what_turned_out_slower_than_uncoded_is_given_up() -> None:
    before = decide(job(1, 16), [window(16, late=0.1)], 0.1, PLAIN, None)
    after = decide(job(1, 16), [window(16, late=0.1)], 0.1, before, 5.0)
    assert after.scheme == "uncoded"
    assert "more than uncoded" in after.reason


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
    found = measured(recorded([cold, cold, cold, warm], [warm, cold, (3.0, False), (1.5, False)]))
    assert found is not None
    assert found.delays_s.tolist() == [[1.0, 1.5, 3.0, 1.5]]
    assert measured(recorded([cold, cold, cold, warm])) is None


def test_narrow_rounds_are_laid_side_by_side_at_the_load_of_uncoded() -> None:
    narrow = DelayProfile(np.array([[0.3, 0.4], [0.5, 0.6]]), load=0.5)
    wide = pooled([window(4, rounds=1, load=0.25), narrow], 4, slope_s=0.4)
    assert wide.delays_s[1:].tolist() == [pytest.approx([0.2, 0.3, 0.4, 0.5]), pytest.approx([0.4, 0.5, 0.2, 0.3])]


def test_segments_cover_every_step_once() -> None:
    ends, at = [], 8
    while at < 100:
        at = segment_end(at, 100)
        ends.append(at)
    assert ends == [33, 58, 83, 100]


def test_models_that_were_ahead_are_caught_up_with_first() -> None:
    segment = Pilot(job(2, 64)).next_segment((3, 5))
    assert (segment.choice.scheme, segment.end) == ("pipeline", 5)
