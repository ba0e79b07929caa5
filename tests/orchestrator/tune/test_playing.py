"""What the evaluator does not cover: played by the loop, few and told so; estimates are marked and win nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pytest

from gradmux.orchestrator.closing import Closing
from gradmux.orchestrator.delays import DelayProfile, generate
from gradmux.orchestrator.errors import ConfigError, SchemeFault
from gradmux.orchestrator.evaluate import Batch, Evaluator, Setting
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Limits, wait_policy
from gradmux.orchestrator.schemes.registry import REGISTRY, register
from gradmux.orchestrator.schemes.scheme import Params
from gradmux.orchestrator.simulate import SimulationOptions, simulate
from gradmux.orchestrator.tune import Choice, TuneOptions, playing, search, tune
from gradmux.orchestrator.tune.material import prepare
from gradmux.orchestrator.tune.sampling import Candidate, combinations, grid, grown, thinned
from tests.orchestrator.schemes import mistakes
from tests.outside import even_odd

QUICK = TuneOptions(jobs=12, slope_s=1.0, resamples=2, workers=(8,), schemes=("uncoded",))
LEFT_OUT_BEFORE = ("grouping", "gc-partial", "agc", "fastest-k", "lag", "g-lag")
ESTIMATES = ("agc", "fastest-k", "lag", "g-lag")


@pytest.fixture(scope="module")
def profile() -> DelayProfile:
    return generate("lambda-like", rounds=20, workers=12, seed=3)


@pytest.fixture
def plugin() -> Iterator[str]:
    register(even_odd.INFO)
    yield "even-odd"
    del REGISTRY["even-odd"]


@pytest.mark.parametrize("scheme", [name for name in LEFT_OUT_BEFORE if name in REGISTRY])
def test_what_it_reports_is_what_the_loop_does(scheme: str, profile: DelayProfile) -> None:
    found = tune(profile, replace(QUICK, schemes=("uncoded", scheme)))
    choice = next(each for each in found.choices if each.scheme == scheme)
    settings = SimulationOptions(
        QUICK.jobs,
        QUICK.models,
        limits=Limits(concurrency=found.concurrency),
        load=LoadModel(1.0, profile.reference_load()),
        workers=choice.workers,
    )
    played = simulate(profile.delays_s, scheme, choice.params, settings)
    assert (choice.total_s, choice.billed_s) == (played.total_s, played.billed_s)
    assert choice.exact == (scheme not in ESTIMATES)


def test_an_estimate_wins_nothing_while_an_exact_scheme_is_to_be_had(profile: DelayProfile) -> None:
    found = tune(profile, replace(QUICK, schemes=("uncoded", "fastest-k")))
    estimate = next(choice for choice in found.choices if choice.scheme == "fastest-k")
    assert estimate.total_s < found.best.total_s, "else nothing is shown"
    assert estimate.missing > 0
    assert found.best.scheme == "uncoded"
    assert all(choice.exact for choice in found.pareto)
    assert any("fastest-k" in warning and "estimate" in warning for warning in found.warnings)


def test_an_estimate_that_is_asked_for_alone_is_chosen_and_marked(profile: DelayProfile) -> None:
    found = tune(profile, replace(QUICK, schemes=("agc",)))
    assert found.best.scheme == "agc"
    assert not found.best.exact
    assert found.best in found.choices
    assert any("estimate" in warning for warning in found.warnings)


def test_a_scheme_from_elsewhere_is_tuned_by_the_loop(profile: DelayProfile, plugin: str) -> None:
    found = tune(profile, replace(QUICK, schemes=(plugin,)))
    assert (found.best.scheme, found.best.workers, found.best.exact) == (plugin, 8, True)
    assert found.evaluated == 1
    settings = SimulationOptions(
        QUICK.jobs,
        QUICK.models,
        limits=Limits(concurrency=found.concurrency),
        load=LoadModel(1.0, profile.reference_load()),
        workers=8,
    )
    played = simulate(profile.delays_s, plugin, found.best.params, settings)
    assert (found.best.total_s, found.best.billed_s) == (played.total_s, played.billed_s)


def test_the_evaluator_names_what_it_knows_when_asked_for_another(profile: DelayProfile, plugin: str) -> None:
    with pytest.raises(ConfigError, match=f"{plugin} is not evaluated .*use simulate"):
        Evaluator(Setting(profile.delays_s)).play(Batch(plugin, 8, {}, 1))


def test_the_grid_that_a_scheme_offers_is_what_is_tried(profile: DelayProfile) -> None:
    def offered(workers: int, models: int) -> list[Params]:
        return [{"groups": workers // 2}, {"G": workers // 4}]

    register(replace(REGISTRY["grouping"], name="offering", grid=offered))
    try:
        found = tune(profile, replace(QUICK, schemes=("offering",)))
    finally:
        del REGISTRY["offering"]
    assert found.evaluated == 2
    assert found.best.params["groups"] in (2, 4)


def test_a_scheme_that_breaks_its_promise_is_no_candidate(profile: DelayProfile) -> None:
    broken = mistakes.info(mistakes.WeightsOfTwo)
    register(broken)
    try:
        with pytest.raises(SchemeFault) as caught:
            tune(profile, replace(QUICK, schemes=(broken.name,)))
    finally:
        del REGISTRY[broken.name]
    assert "\n" not in str(caught.value)


def test_m_sgc_with_lambda_n_is_tried(profile: DelayProfile) -> None:
    material = prepare(profile, QUICK)
    found, told = playing.candidates(material, replace(QUICK, schemes=("m-sgc",)))
    assert {each.params["max_stragglers"] for each in found} == {8}
    played = playing.play(found, material, QUICK)
    assert len(played.exact) == len(found) > 2
    assert not told
    burst, window = (found[0].params[name] for name in ("burst", "window"))
    assert played.exact[0].load == pytest.approx((window - 1 + burst) / (8 * (window - 1)))


def test_fewer_are_played_than_there_are_and_that_is_told(
    profile: DelayProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "MOST_SETS", 3)
    found = tune(profile, replace(QUICK, schemes=("uncoded", "gc-partial")))
    assert any("gc-partial is played by the loop: 3 of " in warning for warning in found.warnings)
    monkeypatch.setattr(playing, "PATIENCE_S", -1.0)
    found = tune(profile, replace(QUICK, schemes=("uncoded", "gc-partial")))
    assert any("were not played" in warning for warning in found.warnings)


def test_cyclic_codes_are_tried_under_the_papers_rule_where_they_are_less_load(profile: DelayProfile) -> None:
    options = replace(QUICK, schemes=("gc", "m-sgc", "sr-sgc"), closing=Closing(wait="mu", mu=0.5))
    material = prepare(profile, options)
    batches = [batch for batch in search.batches(material, options) if batch.code == "cyclic"]
    assert {batch.scheme for batch in batches} == {"gc", "m-sgc", "sr-sgc"}
    (gc,) = (batch for batch in batches if batch.scheme == "gc")
    assert gc.ints("stragglers").tolist() == [2, 4, 5, 6], "8 workers: 1, 3 and 7 divide them evenly"
    (tried,) = search.try_all([gc], material, options)
    for column in range(gc.size):
        played = playing.play_one(Candidate("gc", gc.params(column), 8), material, options)
        assert played.total_s == pytest.approx(tried.total_s[column])
    assert not [
        batch for batch in search.batches(material, replace(options, closing=Closing())) if batch.code == "cyclic"
    ]


def test_a_noisy_code_is_warned_of_beside_the_result() -> None:
    wide = generate("lambda-like", rounds=8, workers=128, seed=1)
    options = TuneOptions(jobs=8, models=1, slope_s=0.0)
    material = prepare(wide, options)
    cyclic = Choice("gc", {"stragglers": 3, "code": "cyclic"}, 128, 1.0, 4 / 128, 128, 1.0, 1.0)
    (warning,) = playing.doubts(cyclic, playing.PlayedByLoop(), material, options)
    assert "amplified rounding" in warning
    calm = replace(cyclic, params={"stragglers": 3, "code": "fractional"})
    assert playing.doubts(calm, playing.PlayedByLoop(), material, options) == ()


@pytest.mark.parametrize("wait_out", ["until", "all"])
def test_both_ways_to_wait_out_are_tuned(profile: DelayProfile, wait_out: Literal["until", "all"]) -> None:
    closing = Closing(wait="mu", mu=0.5, wait_out=wait_out)
    found = tune(profile, replace(QUICK, schemes=("gc", "grouping"), closing=closing))
    for choice in found.choices:
        settings = SimulationOptions(
            QUICK.jobs,
            QUICK.models,
            wait=wait_policy(closing),
            limits=Limits(concurrency=found.concurrency, harvest_late=False),
            load=LoadModel(1.0, profile.reference_load()),
            workers=choice.workers,
        )
        played = simulate(profile.delays_s, choice.scheme, choice.params, settings)
        assert played.total_s == pytest.approx(choice.total_s)


def test_a_default_grid_is_bounded_and_has_both_ends() -> None:
    sets = grid(REGISTRY["gc-partial"], 256, 4)
    assert 10 < len(sets) <= 600
    assert {0, 256} <= {each["stragglers"] for each in sets}
    assert grown(10) == [1, 2, 3, 4, 6, 9, 10]
    assert grown(1) == [1]
    assert thinned([1, 2, 3, 4, 5], 3) == [1, 3, 5]
    assert len(combinations([range(50), range(40), "ab"], 100)) <= 100


def test_nothing_that_fits_is_told_in_one_line(profile: DelayProfile) -> None:
    with pytest.raises(ConfigError, match="unknown scheme 'agx'"):
        replace(QUICK, schemes=("agx",))
