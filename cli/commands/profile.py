"""`gradmux profile`: looks at, converts and makes delay profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradmux.cli.numbers import FiniteFloat
from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import facts, print_json, stdout, table
from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from gradmux.orchestrator.delays import DelayProfile, ProfileSummary, Straggling

SHOWN_ROUNDS, SHOWN_WORKERS = 100, 256
"""of a generator that is only looked at"""
STRAGGLING = ("mu", "stragglers", "sd over rounds", "mean burst", "longest", "likelier")
FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("profile")
def profile_command() -> None:
    """Look at, convert and make delay profiles: how long each worker took in each round."""


@command("show", example="gradmux profile show lambda-like --heat-map delays.png")
@click.argument("profile")
@click.option("--mu", "tolerances", multiple=True, type=FiniteFloat(0), help="Count stragglers at (1 + MU) x fastest.")
@click.option("--heat-map", type=FILE, help="Write workers x rounds as a picture (.png or .svg).")
@click.option("--tail", type=FILE, help="Write the tail of the delays as a picture (.png or .svg).")
@pass_settings
def show(
    settings: Settings, profile: str, tolerances: tuple[float, ...], heat_map: Path | None, tail: Path | None
) -> None:
    """Describe the delays of PROFILE (a file, or a generator's name): stragglers, bursts, tail, heat map."""
    from gradmux.orchestrator.delays import summarise
    from gradmux.orchestrator.delays.find import find_profile
    from gradmux.orchestrator.delays.plots import picture_path, save_heat_map, save_tail_plot
    from gradmux.orchestrator.delays.statistics import TOLERANCES

    for picture in filter(None, (heat_map, tail)):
        picture_path(picture)  # a mistake in one is told before the other is drawn
    found = find_profile(profile, workers=SHOWN_WORKERS, rounds=SHOWN_ROUNDS, seed=0)
    if heat_map is not None:
        save_heat_map(found, heat_map)
    if tail is not None:
        save_tail_plot([found], tail)
    summary = summarise(found, tolerances or TOLERANCES)
    print_json(summary.to_dict()) if settings.json else _describe(found, summary)


@command("convert", example="gradmux profile convert measured.csv measured.npz")
@click.argument("source", type=FILE)
@click.argument("destination", type=FILE)
@pass_settings
def convert(settings: Settings, source: Path, destination: Path) -> None:
    """Write the delays in SOURCE (.npz, .csv, or a run's record .jsonl) to DESTINATION (.npz or .csv)."""
    from gradmux.orchestrator.delays.formats import load_profile, profile_path, save_profile

    profile_path(destination)
    profile = load_profile(source)
    save_profile(profile, destination)
    _tell(settings, profile, destination)


@command(
    "generate", example="gradmux profile generate lambda-like lambda.npz --rounds 200 --workers 256 -p spread_s=0.2"
)
@click.argument("kind")
@click.argument("destination", type=FILE)
@click.option("--rounds", default=100, show_default=True, type=click.IntRange(1))
@click.option("--workers", default=256, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("-p", "parameters", multiple=True, metavar="KEY=VALUE", help="A parameter of the generator.")
@pass_settings
def generate(
    settings: Settings,
    kind: str,
    destination: Path,
    rounds: int,
    workers: int,
    seed: int,
    parameters: tuple[str, ...],
) -> None:
    """Make a synthetic profile of KIND (lambda-like, bursty, shifted-exponential, ...) and write it to DESTINATION."""
    from gradmux.cli.arguments import parse_parameters
    from gradmux.orchestrator.delays import generate, parameters_for
    from gradmux.orchestrator.delays.formats import profile_path, save_profile

    profile_path(destination)
    overrides = {name: _number(name, text) for name, text in parse_parameters(parameters).items()}
    profile = generate(kind, rounds, workers, seed, parameters_for(kind, overrides))
    save_profile(profile, destination)
    _tell(settings, profile, destination)


for made in (show, convert, generate):
    profile_command.add_command(made)


def _describe(profile: DelayProfile, summary: ProfileSummary) -> None:
    from gradmux.orchestrator.delays.text import heat_map, tail_sketch

    slope = "not known" if summary.slope_s is None else f"{summary.slope_s:.3f} s per unit of load"
    told = [
        ("profile", f"{summary.name}: {summary.rounds} rounds of {summary.workers} workers, at load {summary.load:g}"),
        ("a round's fastest", f"{summary.fastest_s:.3f} s (median over the rounds)"),
        ("a round's slowest", f"{summary.slowest_s:.3f} s (median), {summary.slowest_mean_s:.3f} s (mean)"),
        ("all answers", f"{summary.median_s:.3f} s (median); slope {slope}"),
        (
            "outliers",
            f"{summary.outlier_share:.3%} of the answers, in {summary.outlier_rounds_share:.1%} of the rounds",
        ),
        ("cold, failed", f"{summary.cold_share:.2%}, {summary.failed_share:.2%}"),
    ]
    console = stdout()
    console.print(facts(told))
    console.print(table(STRAGGLING, [_straggling(at) for at in summary.straggling], right=STRAGGLING))
    console.print("likelier: how much likelier than by chance a straggler of one round straggles in another\n")
    console.print(f"{tail_sketch(profile)}\n\n{heat_map(profile)}")


def _straggling(at: Straggling) -> tuple[str, ...]:
    likelier = "-" if at.repeat_ratio is None else f"{at.repeat_ratio:.2f}"
    return f"{at.mu:g}", f"{at.share:.2%}", f"{at.share_sd:.2%}", f"{at.burst_mean:.2f}", str(at.burst_max), likelier


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"-p {name}={text}: must be a number") from None


def _tell(settings: Settings, profile: DelayProfile, destination: Path) -> None:
    document = {"profile": str(destination), **profile.to_dict()}
    if settings.json:
        print_json(document)
        return
    size = f"{profile.rounds} rounds of {profile.workers} workers, {document['failed']} failed invocations"
    stdout().print(facts([("profile", size), ("written to", str(destination))]))
