"""Whatever the tuner says of a choice is what the loop does with it: every scheme of ours, and schemes from elsewhere.

The best of each scheme is played again by the loop. So the evaluator is held to it on the tuner's own choices, and what
only the loop plays (lazy schemes, estimates, plug-ins) on its way through the tuner.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from gradmux.cli.main import run
from gradmux.orchestrator.closing import Closing
from gradmux.orchestrator.delays import DelayProfile, generate
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import wait_policy
from gradmux.orchestrator.schemes.registry import OURS, REGISTRY, get, register
from gradmux.orchestrator.schemes.scheme import SchemeInfo
from gradmux.orchestrator.simulate import Simulation, SimulationOptions, simulate
from gradmux.orchestrator.tune import Choice, TuneOptions, TuneResult, tune
from gradmux.orchestrator.tune.money import worth
from tests.outside import even_odd

ESTIMATES = {"agc", "fastest-k"}
OTHERS = {"ring-repeat": "ringrepeat", "bernoulli": "bernoulli"}
"""schemes of another author, beside the project: name -> file"""
PASSES = 64
SLOPE_S = 1.0
QUICK = TuneOptions(jobs=12, slope_s=SLOPE_S, resamples=2, workers=(5, 8))
BY_MU = Closing(wait="mu", mu=0.5)


@pytest.fixture(scope="module")
def profile() -> DelayProfile:
    return generate("lambda-like", rounds=20, workers=12, seed=3)


@pytest.fixture
def restored_registry() -> Iterator[None]:
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def looped(choice: Choice, found: TuneResult, profile: DelayProfile, options: TuneOptions) -> Simulation:
    """The loop's word on a choice."""
    fits_itself = choice.scheme == "pipeline-auto"  # which heeds no rule and no cap
    settings = SimulationOptions(
        options.jobs,
        options.models,
        wait=wait_policy(Closing() if fits_itself else options.closing),
        limits=options.limits(found.concurrency),
        load=LoadModel(SLOPE_S, profile.reference_load()),
        workers=choice.workers,
        seed=options.seed,
        passes=options.passes,
        worth=worth(options),
    )
    return simulate(profile.delays_s, choice.scheme, choice.params, settings)


def agrees(choice: Choice, found: TuneResult, profile: DelayProfile, options: TuneOptions) -> None:
    """Asserts that a choice is what the loop makes of it.

    Where passes do not go evenly into tasks, the evaluator gives each worker what the busiest has: up to one pass more.
    """
    played = looped(choice, found, profile, options)
    more = 0.0 if options.passes is None else SLOPE_S / options.passes
    assert -1e-9 <= choice.total_s - played.total_s <= len(played.lines) * more + 1e-9
    assert -1e-8 <= choice.billed_s - played.billed_s <= played.invocations * more + 1e-8
    assert choice.load >= played.load - 1e-12
    assert choice.in_flight_max == pytest.approx(played.in_flight_max, abs=2)


def tuned(scheme: str, profile: DelayProfile, options: TuneOptions) -> Choice:
    """The best of one scheme, held to the loop."""
    options = replace(options, schemes=(scheme,))
    found = tune(profile, options)
    for choice in found.choices:
        agrees(choice, found, profile, options)
    assert found.best.scheme == scheme
    assert found.evaluated >= 1
    return found.best


@pytest.mark.parametrize("passes", [None, PASSES])
@pytest.mark.parametrize("scheme", sorted(OURS))
def test_every_scheme_of_ours(scheme: str, passes: int | None, profile: DelayProfile) -> None:
    best = tuned(scheme, profile, replace(QUICK, passes=passes))
    reuses = scheme in ("lag-ps", "lag-wk", "g-lag", "lagc")
    assert best.exact == (scheme not in ESTIMATES and not reuses)


@pytest.mark.parametrize("scheme", sorted(OURS - {"pipeline-auto", "backup"}))
def test_the_same_under_the_papers_rule(scheme: str, profile: DelayProfile) -> None:
    options = replace(QUICK, schemes=(scheme,), closing=BY_MU)
    found = tune(profile, options)
    for choice in found.choices:
        agrees(choice, found, profile, options)


def test_backups_have_no_rule_of_the_papers(profile: DelayProfile) -> None:
    """A late task is invoked again until it answers, so that no straggler is given up: told in one line."""
    with pytest.raises(ConfigError, match="nothing fits: backup under these bounds"):
        tune(profile, replace(QUICK, schemes=("backup",), closing=BY_MU))


@pytest.mark.usefixtures("restored_registry")
def test_a_scheme_from_elsewhere(profile: DelayProfile) -> None:
    register(even_odd.INFO)
    best = tuned("even-odd", profile, replace(QUICK, workers=(4, 8)))
    assert best.exact


def other(shared: Path, name: str) -> SchemeInfo:
    """One of the schemes beside the project, as if it named the rooms by their present names."""
    path = shared / "cases" / "plugin" / f"{OTHERS[name]}.py"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    source = path.read_text().replace("from orchestrator.", "from gradmux.orchestrator.")
    module = ModuleType(OTHERS[name])
    exec(compile(source, str(path), "exec"), vars(module))
    info: SchemeInfo = module.INFO
    return info


@pytest.mark.usefixtures("restored_registry")
@pytest.mark.parametrize("name", OTHERS)
def test_schemes_of_another_author(name: str, shared: Path, profile: DelayProfile) -> None:
    """One with a delay and two slots, which is exact; one that estimates."""
    register(other(shared, name))
    best = tuned(name, profile, QUICK)
    assert best.exact == (name == "ring-repeat")


@pytest.mark.usefixtures("restored_registry")
def test_an_exact_scheme_from_elsewhere_may_win_over_ours(profile: DelayProfile) -> None:
    register(even_odd.INFO)
    options = replace(QUICK, workers=(8,), schemes=("uncoded", "even-odd"))
    found = tune(profile, options)
    values = {choice.scheme: options.value(choice.cost_usd, choice.total_s) for choice in found.choices}
    assert set(values) == {"uncoded", "even-odd"}
    assert found.best.scheme == min(values, key=lambda name: values[name])


@pytest.mark.usefixtures("restored_registry")
def test_the_command_tunes_an_installed_distributions_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Installed is enough: nothing of ours names it."""
    (tmp_path / "rings.py").write_text(Path(even_odd.__file__).read_text())
    info = tmp_path / "rings-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rings\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gradmux.schemes]\neven-odd = rings:INFO\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "rings", raising=False)
    options = ["--jobs", "12", "--slope", "1", "--resamples", "0", "--workers", "4,8", "--json"]
    assert run(["tune", "lambda-like", "--schemes", "even-odd,grouping", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {choice["scheme"] for choice in told["choices"]} == {"even-odd", "grouping"}
    assert get("even-odd").build.__module__ == "rings"
