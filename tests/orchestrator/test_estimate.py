"""Estimates by hand: what is played is counted, late and redundant calls too, and priced as AWS does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gradmux.orchestrator.errors import DeadlinePassed
from gradmux.orchestrator.estimate.calls import ROUNDED_S, Calls, Storing, Work, bill, looks, play
from gradmux.orchestrator.fleets.mailbox import pause_s
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.prices import Prices
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.registry import build_scheme, get, parse_params
from gradmux.orchestrator.schemes.scheme import Context, Scheme

PRICES = Prices(gb_s=0.01, million_requests=1e4, thousand_puts=5.0, thousand_gets=0.4)
PLAN = JobPlan(models=2, steps=2)


def built(name: str, **params: int) -> Scheme:
    context = Context(workers=2, jobs=PLAN.jobs, models=PLAN.models)
    return build_scheme(name, parse_params(get(name), params), context)


def played(name: str, load: LoadModel | None = None, deadline_s: float | None = None, **params: int) -> Calls:
    """Two workers: one answers after 1 s, the other after 3 s."""
    scheme = built(name, **params)
    rounds = Rounds(scheme, PLAN, Earliest(), Limits(deadline_s=deadline_s))
    table = DelayTable(np.array([[1.0, 3.0]]), 2)
    return play(scheme, rounds, PLAN, table, load or LoadModel())[0]


def test_uncoded_rounds_wait_for_the_slower_and_bill_both() -> None:
    assert played("uncoded") == Calls(invocations=8, tasks=8, results=8, jobs=4, rounds=4, billed_s=16.0, wall_s=12.0)


def test_late_answers_of_a_code_are_billed_in_full() -> None:
    assert played("gc", s=1) == Calls(invocations=8, tasks=8, results=4, jobs=4, rounds=4, billed_s=16.0, wall_s=4.0)


def test_computation_makes_answers_longer_where_the_delay_is_shorter() -> None:
    """Half a batch each takes 2 s to compute: the first worker's second of delay is over by then."""
    assert played("uncoded", LoadModel(least_slope_s=4.0)).billed_s == 4 * (2.0 + 3.0)
    assert played("gc", LoadModel(slope_s=4.0), s=1).billed_s == 4 * (1.0 + 3.0 + 2 * 4.0)


def test_the_heaviest_task_is_what_a_worker_would_be_tried_on() -> None:
    scheme = built("gc", s=1)
    rounds = Rounds(scheme, PLAN, Earliest(), Limits())
    seen = play(scheme, rounds, PLAN, DelayTable(np.ones((1, 2)), 2), LoadModel())[1]
    assert (seen.load, len(seen.task.chunks), seen.early) == (1.0, len(scheme.chunk_sizes), False)


def test_a_run_that_would_stop_has_no_estimate() -> None:
    with pytest.raises(DeadlinePassed):
        played("uncoded", deadline_s=1.0)


def test_parts_of_a_run_add_up() -> None:
    calls = Calls(8, 8, 4, 4, 4, 16.0, 12.0)
    assert calls.times(2.5) == Calls(20, 20, 10, 10, 10, 40.0, 30.0)
    assert calls + calls == calls.times(2)


def test_the_bill() -> None:
    calls = Calls(invocations=1000, tasks=2000, results=800, jobs=100, rounds=100, billed_s=499.5, wall_s=50.0)
    told = bill(calls, Work(slope_s=1.0, puts=0.0, gets=1.0), Storing(puts_per_job=1.0), 10, 2048, PRICES)
    assert told.billed_s == pytest.approx(499.5 + 1000 * ROUNDED_S)
    assert told.gb_s == pytest.approx(1000.0)
    assert told.compute_usd == pytest.approx(10.0)
    assert told.requests_usd == pytest.approx(10.0)
    puts, gets = 100, 2000 + 10 * (1 + 50.0 / 2.0)
    assert told.s3_usd == pytest.approx(puts * 5e-3 + gets * 0.4e-3)
    assert told.usd == pytest.approx(told.lambda_usd + told.s3_usd)


def test_rows_that_each_worker_fetches_once_are_requests_and_time() -> None:
    calls = Calls(invocations=1000, tasks=2000, results=800, jobs=100, rounds=100, billed_s=499.5, wall_s=50.0)
    none, fetched = (
        bill(calls, Work(slope_s=1.0), storing, 10, 1024, PRICES)
        for storing in (Storing(), Storing(fetch_gets=64, fetch_s=3.5))
    )
    assert fetched.billed_s - none.billed_s == pytest.approx(10 * 3.5)
    assert fetched.s3_usd - none.s3_usd == pytest.approx(10 * 64 * 0.4e-3)


def test_what_leaves_aws_is_billed() -> None:
    """2,000 results of 4 MB are 8 GB, 100 sums of 10 MB one more: 9 cents each."""
    calls = Calls(invocations=1000, tasks=2000, results=800, jobs=100, rounds=100, billed_s=499.5, wall_s=50.0)
    none, sent = (
        bill(calls, Work(slope_s=1.0), storing, 10, 2048, replace(PRICES, out_gb=9.0))
        for storing in (Storing(), Storing(sent_per_task=4e6, sent_per_job=1e7))
    )
    assert (none.out_usd, sent.out_usd) == (0.0, pytest.approx(81.0))
    assert sent.usd - none.usd == pytest.approx(81.0)
    assert sent.lambda_usd == none.lambda_usd


def test_results_through_s3_are_put_and_fetched() -> None:
    calls = Calls(invocations=10, tasks=10, results=8, jobs=4, rounds=4, billed_s=1.0)
    told = bill(calls, Work(slope_s=1.0, puts=1.0), Storing(fetched=True), 2, 2048, PRICES)
    assert told.s3_usd == pytest.approx(10 * 5e-3 + (2 + 10) * 0.4e-3)


def test_sums_in_the_cloud_are_calls_that_read_every_result() -> None:
    calls = Calls(invocations=40, tasks=40, results=30, jobs=10, rounds=10, billed_s=5.0)
    told = bill(calls, Work(1.0, puts=1.0), Storing(slices=3, slice_s=0.1), 4, 1024, PRICES)
    assert told.invocations == 40 + 10 * 3
    assert told.billed_s == pytest.approx(5.0 + 30 * 3 * 0.1 + 70 * ROUNDED_S)
    puts, gets = 40 + 30, 4 + 30 * 3 + 30
    assert told.s3_usd == pytest.approx(puts * 5e-3 + gets * 0.4e-3)


def test_answers_by_mail_are_looked_for() -> None:
    calls = Calls(invocations=8, tasks=8, results=8, jobs=4, rounds=4, billed_s=16.0, wall_s=12.0)
    told = bill(calls, Work(1.0), Storing(mailed=True), 2, 1024, PRICES)
    assert told.s3_usd == pytest.approx((8 + 4 * looks(3.0)) * 5e-3 + (8 + 8) * 0.4e-3)
    assert looks(0.0) == 0
    ages = [0.0]
    while ages[-1] < 3.0:
        ages.append(ages[-1] + pause_s(ages[-1]))
    assert looks(3.0) == len(ages) - 1 < 200
