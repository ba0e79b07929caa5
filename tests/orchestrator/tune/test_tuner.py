"""The tuner: what it reports is what the loop would do, it keeps to the options, and it answers in every odd case."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gradmux.orchestrator.closing import Closing
from gradmux.orchestrator.delays import DelayProfile, generate
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Limits
from gradmux.orchestrator.prices import PRICES, Prices
from gradmux.orchestrator.simulate import SimulationOptions, simulate
from gradmux.orchestrator.tune import SCHEMES, Choice, TuneOptions, TuneResult, tune
from gradmux.orchestrator.tune.money import worth

SLOPE_S = 1.0
QUICK = TuneOptions(jobs=24, slope_s=SLOPE_S, resamples=4, hour_usd=np.inf)


@pytest.fixture(scope="module")
def profile() -> DelayProfile:
    return generate("lambda-like", rounds=24, workers=48, seed=3)


@pytest.fixture(scope="module")
def result(profile: DelayProfile) -> TuneResult:
    return tune(profile, QUICK)


def reported(result: TuneResult) -> list[Choice]:
    return [result.best, *result.choices, *result.pareto]


def test_what_it_reports_is_what_the_loop_does(profile: DelayProfile, result: TuneResult) -> None:
    load = LoadModel(SLOPE_S, profile.reference_load())
    for choice in result.choices:
        played = simulate(
            profile.delays_s,
            choice.scheme,
            choice.params,
            SimulationOptions(
                jobs=QUICK.jobs,
                models=QUICK.models,
                limits=Limits(concurrency=result.concurrency),
                load=load,
                workers=choice.workers,
                worth=worth(QUICK),
            ),
        )
        assert played.total_s == pytest.approx(choice.total_s, abs=1e-9)
        assert played.billed_s == pytest.approx(choice.billed_s, abs=1e-6)
        assert played.workers == choice.workers
        assert played.load == pytest.approx(choice.load)
        assert played.in_flight_max == pytest.approx(choice.in_flight_max, abs=2 if choice.scheme == "backup" else 0)


def test_every_scheme_is_tried_and_the_best_is_no_slower_than_any(result: TuneResult) -> None:
    assert {choice.scheme for choice in result.choices} == set(SCHEMES)
    fastest_s = min(choice.total_s for choice in reported(result))
    assert result.best.total_s <= fastest_s * 1.25, "robust, or fitting itself to the delays, but among the close ones"
    assert result.best in result.choices
    assert {name for name, baseline in result.baselines.items() if baseline is None} == {"here"}
    assert result.best.spread is not None
    assert result.best.spread.low_s <= result.best.spread.mean_s <= result.best.spread.high_s


def test_on_the_front_faster_costs_more(result: TuneResult) -> None:
    times = [choice.total_s for choice in result.pareto]
    costs = [choice.cost_usd for choice in result.pareto]
    assert times == sorted(times)
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == len(costs)


def test_by_cost_it_takes_the_cheapest(profile: DelayProfile, result: TuneResult) -> None:
    cheap = tune(profile, replace(QUICK, hour_usd=0, resamples=0)).best
    assert cheap.cost_usd == pytest.approx(min(choice.cost_usd for choice in reported(result)))
    assert cheap.cost_usd < result.best.cost_usd


def test_arm_costs_less_and_prices_are_the_users_own(profile: DelayProfile) -> None:
    by_cost = replace(QUICK, hour_usd=0, resamples=0, schemes=("uncoded",), workers=(8,))
    x86, arm = tune(profile, by_cost).best, tune(profile, replace(by_cost, prices=PRICES.for_arm())).best
    free = tune(profile, replace(by_cost, prices=Prices(gb_s=0, million_requests=0, thousand_puts=0, thousand_gets=0)))
    assert arm.cost_usd < x86.cost_usd
    assert free.best.cost_usd == 0
    compute_usd = x86.billed_s * QUICK.memory_mb / 1024 * PRICES.gb_s
    calls = QUICK.jobs * 8
    objects_usd = QUICK.jobs * PRICES.thousand_puts / 1e3 + calls * PRICES.thousand_gets / 1e3
    assert x86.cost_usd == pytest.approx(compute_usd + calls * PRICES.million_requests / 1e6 + objects_usd)


def test_equal_options_give_equal_answers(profile: DelayProfile, result: TuneResult) -> None:
    again = tune(profile, QUICK)
    assert again.best == result.best
    assert again.pareto == result.pareto


@pytest.mark.parametrize("workers", [(8,), (6, 24)])
def test_it_keeps_to_the_workers_that_are_given(profile: DelayProfile, workers: tuple[int, ...]) -> None:
    found = tune(profile, replace(QUICK, workers=workers))
    assert {choice.workers for choice in reported(found)} <= set(workers)


def test_it_keeps_to_concurrency_load_and_delay(profile: DelayProfile) -> None:
    found = tune(profile, replace(QUICK, concurrency=20, max_load=2.0, models=2, resamples=0))
    for choice in reported(found):
        assert choice.workers <= 20
        assert choice.in_flight_max <= 20
        steps = choice.params.get("steps", 1)
        assert choice.load / steps * choice.workers <= 2.0 + 1e-9, "what a step takes, of a whole batch"
        if choice.scheme == "sr-sgc":
            assert choice.params["burst"] <= 1
        if choice.scheme == "m-sgc":
            assert choice.params["window"] - 2 + choice.params["burst"] <= 1


def test_uncoded_wins_where_nobody_straggles_and_computing_costs() -> None:
    even = DelayProfile(np.full((20, 8), 1.0), load=1 / 8, slope_s=50.0, base_load=0.0)
    found = tune(even, TuneOptions(jobs=12, models=1, schemes=("uncoded", "gc", "backup"), resamples=0))
    assert found.best.scheme == "uncoded"
    assert found.best.workers == 8


def test_a_profile_without_a_rare_slow_answer_does_not_speak_against_redundancy() -> None:
    rng = np.random.default_rng(0)
    calm = DelayProfile(rng.uniform(1.0, 1.001, (20, 40)), slope_s=0.1)
    lucky = tune(calm, TuneOptions(jobs=40, schemes=("pipeline",), workers=(8,), resamples=0))
    careful = tune(calm, TuneOptions(jobs=40, schemes=("pipeline",), workers=(8,), resamples=40))
    assert lucky.best.params["stragglers"] == 0
    assert careful.best.params["stragglers"] > 0


def test_what_fits_itself_to_the_delays_is_taken_where_it_comes_near_the_best(profile: DelayProfile) -> None:
    """And only there: a single gradient leaves no time to learn, and a bound on the load cannot be kept to."""
    long = replace(QUICK, jobs=120, concurrency=48, schemes=("uncoded", "gc", "pipeline", "pipeline-auto"))
    found = tune(profile, long)
    by_scheme = {choice.scheme: choice for choice in found.choices}
    assert found.best == by_scheme["pipeline-auto"]
    assert found.best.spread is not None
    assert found.best.total_s <= 1.25 * min(choice.total_s for choice in found.choices)
    bounded = tune(profile, replace(long, max_load=2.0, resamples=0))
    assert "pipeline-auto" not in {choice.scheme for choice in bounded.choices}
    assert any("pipeline-auto is left out" in warning for warning in bounded.warnings)


def test_it_may_be_the_only_one(profile: DelayProfile) -> None:
    alone = tune(profile, replace(QUICK, schemes=("pipeline-auto",), workers=(8, 16)))
    assert (alone.best.scheme, alone.best.workers) == ("pipeline-auto", 16)
    assert alone.choices == alone.pareto == (alone.best,)
    assert alone.cross_validation is None
    with pytest.raises(ConfigError, match="nothing fits"):
        tune(profile, replace(QUICK, schemes=("pipeline-auto",), max_load=2.0))


def test_the_papers_wait_rule_is_tuned_too(profile: DelayProfile) -> None:
    found = tune(profile, replace(QUICK, closing=Closing(wait="mu", mu=1.0), resamples=0, workers=(12, 24)))
    assert {choice.scheme for choice in found.choices} == set(SCHEMES) - {"backup"}
    assert found.baselines["backup"] is not None
    assert any("harvest_late" in warning for warning in found.warnings)


# --- one objective, and what is done by hand -------------------------------------------------------------------------

FEW = replace(QUICK, schemes=("uncoded", "pipeline", "stretch"), resamples=0)


def test_what_waiting_is_worth_decides_between_money_and_time(profile: DelayProfile) -> None:
    found = [tune(profile, replace(FEW, hour_usd=hour_usd)) for hour_usd in (0.0, 1.0, 10.0, 100.0, np.inf)]
    times = [each.best.total_s for each in found]
    costs = [each.best.cost_usd for each in found]
    assert times == sorted(times, reverse=True)
    assert costs == sorted(costs)
    assert times[0] > times[-1]
    for each in found[1:-1]:
        worth = {choice.scheme: choice.cost_usd + each.hour_usd / 3600 * choice.total_s for choice in each.choices}
        assert each.best.scheme == min(worth, key=lambda scheme: worth[scheme])


def test_the_neighbours_on_the_front_say_what_they_save_and_cost(profile: DelayProfile) -> None:
    found = tune(profile, replace(FEW, hour_usd=1.0))
    faster, cheaper = found.neighbours()["faster"], found.neighbours()["cheaper"]
    assert faster is not None or cheaper is not None
    if faster is not None:
        assert faster["time_s"] < 0 < faster["usd"]
    if cheaper is not None:
        assert cheaper["usd"] < 0 < cheaper["time_s"]


def test_a_map_is_one_call_for_each_model_or_as_few_as_fit() -> None:
    even = DelayProfile(np.full((20, 24), 2.0), load=0.0, slope_s=10.0)
    short = tune(even, TuneOptions(jobs=40, models=4, schemes=("uncoded",), resamples=0)).baselines["map"]
    assert short is not None
    assert short.params == {"copies": 1, "steps": 10}
    assert short.total_s == pytest.approx(2.0 + 10 * 10.0)
    assert short.billed_s == pytest.approx(4 * 102.0)
    long = tune(even, TuneOptions(jobs=480, models=4, schemes=("uncoded",), resamples=0)).baselines["map"]
    assert long is not None
    assert long.params["steps"] == 60, "120 steps of 10 s are two calls of at most 900 s"
    endless = replace(even, slope_s=1000.0)
    assert tune(endless, TuneOptions(jobs=8, schemes=("uncoded",), resamples=0)).baselines["map"] is None


def test_it_says_where_a_plain_map_or_this_machine_is_the_better_choice() -> None:
    far = DelayProfile(np.full((20, 24), 2.0), load=0.0, slope_s=0.01)
    dear = DelayProfile(np.full((20, 24), 0.1), load=0.0, slope_s=100.0)
    options = TuneOptions(jobs=40, schemes=("uncoded", "pipeline"), resamples=0)
    assert any("a plain map is the better choice" in told for told in tune(far, options).advice)
    assert tune(dear, options).advice == ()
    assert any("this machine alone" in told for told in tune(dear, replace(options, here_s=0.5)).advice)
    assert tune(dear, replace(options, here_s=500.0)).advice == ()


def test_what_leaves_aws_is_in_the_bill(profile: DelayProfile) -> None:
    small = replace(FEW, hour_usd=0.0, schemes=("uncoded",), workers=(8,))
    without, large = tune(profile, small).best, tune(profile, replace(small, parameters=900_000)).best
    calls = QUICK.jobs * 8
    assert large.cost_usd - without.cost_usd == pytest.approx(calls * 4 * 900_000 / 1e9 * 0.09)


ODD: dict[str, tuple[Callable[[], DelayProfile], TuneOptions]] = {
    "10 rounds": (lambda: generate("lambda-like", rounds=10, workers=16, seed=0), QUICK),
    "one round": (lambda: generate("lambda-like", rounds=1, workers=16, seed=0), QUICK),
    "one worker": (lambda: generate("lambda-like", rounds=20, workers=1, seed=0), QUICK),
    "one worker, one model": (lambda: generate("lambda-like", rounds=20, workers=1, seed=0), replace(QUICK, models=1)),
    "one job": (lambda: generate("lambda-like", rounds=20, workers=8, seed=0), replace(QUICK, jobs=1)),
    "more models than concurrency": (
        lambda: generate("lambda-like", rounds=20, workers=3, seed=0),
        replace(QUICK, models=5),
    ),
    "nothing may be in flight": (
        lambda: generate("lambda-like", rounds=20, workers=8, seed=0),
        replace(QUICK, closing=Closing(in_flight_cap=0.0)),
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_profile_has_a_clear_answer(case: str) -> None:
    make, wanted = ODD[case]
    found = tune(make(), wanted)
    assert np.isfinite(found.best.total_s)
    assert found.best.total_s > 0
    assert found.evaluated > 0


def test_few_rounds_are_warned_of() -> None:
    few = tune(generate("lambda-like", rounds=7, workers=16, seed=0), QUICK)
    assert any("7 rounds are few" in warning for warning in few.warnings)
    assert few.cross_validation is None
    assert any("too few rounds to cross-validate" in warning for warning in few.warnings)


def test_an_unknown_slope_is_warned_of() -> None:
    flat = DelayProfile(np.random.default_rng(0).uniform(1, 2, (20, 6)))
    found = tune(flat, TuneOptions(jobs=8, resamples=0))
    assert any("--slope" in warning for warning in found.warnings)


def failing(rounds: int = 20, found_s: float = np.inf) -> DelayProfile:
    """Every other round's first call fails; all answers take a second."""
    delays = np.full((rounds, 6), 1.0)
    delays[::2, 0] = found_s
    failed = np.zeros(delays.shape, dtype=np.bool_)
    failed[::2, 0] = True
    return DelayProfile(delays, slope_s=0.0, failed=failed)


def test_a_failed_call_is_found_after_the_delay_stated_or_the_timeout_and_invoked_again() -> None:
    options = TuneOptions(jobs=20, models=1, schemes=("uncoded",), workers=(6,), resamples=0, attempts=9)
    stated, unstated = tune(failing(found_s=0.25), options), tune(failing(), replace(options, timeout_s=4.0))
    assert any("found after the delay stated, and invoked again" in warning for warning in stated.warnings)
    assert any("found after 4 s, the timeout, and invoked again" in warning for warning in unstated.warnings)
    for found, found_s in ((stated, 0.25), (unstated, 4.0)):
        again = found.best.total_s - 20.0
        assert again / found_s == pytest.approx(round(again / found_s))  # each failure costs that, and nothing else
        assert again >= 10 * found_s


def test_tune_and_simulate_agree_where_calls_fail() -> None:
    profile = failing(found_s=2.0)
    found = tune(profile, TuneOptions(jobs=24, models=3, workers=(6,), resamples=0, slope_s=0.5))
    checked = 0
    for choice in found.choices:
        if choice.scheme in ("pipeline-auto", "backup"):
            continue
        options = SimulationOptions(
            jobs=24,
            models=3,
            limits=Limits(concurrency=found.concurrency),
            load=LoadModel(0.5),
            failures=profile.failures(),
            workers=choice.workers,
        )
        assert simulate(profile.delays_s, choice.scheme, choice.params, options).total_s == pytest.approx(
            choice.total_s
        )
        checked += 1
    assert checked >= 4


def test_backup_is_played_by_the_loop_where_calls_fail() -> None:
    found = tune(failing(found_s=2.0), TuneOptions(jobs=24, models=3, workers=(6,), resamples=0))
    assert found.baselines["backup"] is not None
    assert "backup" in {choice.scheme for choice in found.choices}


def test_a_profile_on_which_everything_stops_is_refused() -> None:
    delays = np.full((20, 6), 1.0)
    delays[5] = np.inf
    with pytest.raises(ConfigError, match="in some round all 2 attempts of a worker fail"):
        tune(DelayProfile(delays, slope_s=0.0), TuneOptions(jobs=20, models=1, attempts=2, schemes=("uncoded", "gc")))


def test_what_stops_on_resampled_rounds_is_told_and_not_preferred() -> None:
    delays = np.full((40, 8), 1.0)
    delays[0, :3] = np.inf
    found = tune(
        DelayProfile(delays, slope_s=0.1), TuneOptions(jobs=40, models=1, attempts=1, schemes=("uncoded", "gc"))
    )
    assert found.best.scheme == "gc"
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))


IMPOSSIBLE: dict[str, tuple[Callable[[], TuneOptions], str]] = {
    "load below 1/n": (lambda: replace(QUICK, max_load=0.5), "nothing satisfies that"),
    "too many workers": (lambda: replace(QUICK, workers=(64,), concurrency=64), "the profile has 12 only"),
    "more than the concurrency": (lambda: replace(QUICK, workers=(12,), concurrency=8), "do not fit concurrency = 8"),
    "no workers": (lambda: replace(QUICK, workers=(0,)), "at least 1 worker"),
    "no concurrency": (lambda: replace(QUICK, concurrency=0), "at least 1 invocation"),
    "no jobs": (lambda: replace(QUICK, jobs=0), "jobs is 0"),
    "cap above 1": (lambda: replace(QUICK, closing=Closing(in_flight_cap=1.5)), "share of the workers"),
    "cap and mu": (
        lambda: replace(QUICK, closing=Closing(wait="mu", mu=1.0, in_flight_cap=0.1)),
        "closes rounds whatever is in flight",
    ),
    "unknown scheme": (lambda: replace(QUICK, schemes=("gc", "agx")), "unknown scheme 'agx'"),
    "no scheme": (lambda: replace(QUICK, schemes=()), "no scheme cannot be tuned"),
    "negative delays": (lambda: replace(QUICK, slope_s=50.0, base_load=1.0), "use a smaller --slope"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_is_told_in_one_line(case: str) -> None:
    make, told = IMPOSSIBLE[case]
    small = generate("lambda-like", rounds=20, workers=12, seed=0)
    with pytest.raises(ConfigError, match=told) as caught:
        tune(small, make())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("closing", [Closing(in_flight_cap=0.0), Closing(harvest_late=False)])
def test_what_is_compared_with_is_bounded_as_the_choices_are(profile: DelayProfile, closing: Closing) -> None:
    """Whether it was tried itself, or is played for the comparison alone."""
    among = replace(QUICK, schemes=("gc", "backup"), closing=closing, resamples=0)
    beside = replace(among, schemes=("gc",))
    assert tune(profile, beside).baselines["backup"] == tune(profile, among).baselines["backup"]


def test_the_cap_reaches_what_is_compared_with(profile: DelayProfile) -> None:
    """Rounds that close while nothing is in flight never have more than n calls at once."""
    alone = replace(QUICK, schemes=("gc",), resamples=0)
    free = tune(profile, alone).baselines["backup"]
    held = tune(profile, replace(alone, closing=Closing(in_flight_cap=0.0))).baselines["backup"]
    assert free is not None
    assert held is not None
    assert held.in_flight_max == held.workers < free.in_flight_max
