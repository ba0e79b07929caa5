"""Which call is hurt, by itself."""

from __future__ import annotations

import json

import pytest

from gradmux.infra.local import EmulatorError, FaultKind, FaultPlan, FaultRate, ScheduledFault

PLACES = [(round, worker, attempt) for round in range(50) for worker in range(40) for attempt in (1, 2)]


def test_a_scheduled_fault_hits_its_place_and_no_other() -> None:
    plan = FaultPlan(schedule=(ScheduledFault(round=3, worker=7, kind=FaultKind.CRASH, attempt=2),))
    assert [place for place in PLACES if plan.decide(*place)] == [(3, 7, 2)]


def test_a_rate_is_met() -> None:
    plan = FaultPlan(rates=(FaultRate(FaultKind.ERROR, 0.10), FaultRate(FaultKind.CRASH, 0.05)), seed=1)
    decided = [plan.decide(*place) for place in PLACES]
    # 4,000 draws: the standard error of a share of 0.1 is 0.005
    assert decided.count(FaultKind.ERROR) / len(PLACES) == pytest.approx(0.10, abs=0.02)
    assert decided.count(FaultKind.CRASH) / len(PLACES) == pytest.approx(0.05, abs=0.02)


def test_the_same_seed_hurts_the_same_calls_and_another_one_others() -> None:
    def hurt(seed: int) -> list[tuple[int, int, int]]:
        plan = FaultPlan(rates=(FaultRate(FaultKind.ERROR, 0.1),), seed=seed)
        return [place for place in PLACES if plan.decide(*place)]

    assert hurt(5) == hurt(5)
    assert hurt(5) != hurt(6)


def test_a_retry_draws_anew() -> None:
    plan = FaultPlan(rates=(FaultRate(FaultKind.ERROR, 0.5),))
    first = [plan.decide(round, 0, 1) for round in range(100)]
    assert first != [plan.decide(round, 0, 2) for round in range(100)]


def test_a_refused_call_that_is_repeated_draws_anew() -> None:
    scheduled = FaultPlan(schedule=(ScheduledFault(0, 0, FaultKind.THROTTLE),))
    assert [scheduled.decide(0, 0, 1, refusals) for refusals in range(3)] == [FaultKind.THROTTLE, None, None]
    drawn = FaultPlan(rates=(FaultRate(FaultKind.THROTTLE, 0.5),))
    refused = [round for round in range(200) if drawn.decide(round, 0, 1)]
    again = [round for round in refused if drawn.decide(round, 0, 1, refusals=1)]
    assert 0.3 < len(again) / len(refused) < 0.7
    assert FaultPlan(rates=(FaultRate(FaultKind.THROTTLE, 1.0),)).decide(0, 0, 1, refusals=9) is FaultKind.THROTTLE


@pytest.mark.parametrize("rates", [(1.5,), (-0.1,), (0.7, 0.7)])
def test_impossible_rates_are_refused(rates: tuple[float, ...]) -> None:
    with pytest.raises(EmulatorError, match="rates"):
        FaultPlan(rates=tuple(FaultRate(FaultKind.ERROR, rate) for rate in rates))


def test_a_plan_survives_json() -> None:
    plan = FaultPlan(
        rates=(FaultRate(FaultKind.CORRUPT, 0.25),),
        schedule=(ScheduledFault(1, 2, FaultKind.SERVICE, 3), ScheduledFault(0, 0, FaultKind.OOM)),
        seed=9,
    )
    assert FaultPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
