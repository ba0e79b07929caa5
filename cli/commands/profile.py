"""`gradmux profile`: looks at, converts and makes delay profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import Settings, command, pass_settings
from cli.output import facts, print_json, stdout
from orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.delays import DelayProfile

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("profile")
def profile_command() -> None:
    """Look at, convert and make delay profiles: how long each worker took in each round."""


@command("convert", example="gradmux profile convert measured.csv measured.npz")
@click.argument("source", type=FILE)
@click.argument("destination", type=FILE)
@pass_settings
def convert(settings: Settings, source: Path, destination: Path) -> None:
    """Write the delays in SOURCE (.npz or .csv) to DESTINATION (.npz or .csv)."""
    from orchestrator.delays.formats import load_profile, save_profile

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
    from cli.policy import parse_parameters
    from orchestrator.delays import generate, parameters_for
    from orchestrator.delays.formats import save_profile

    overrides = {name: _number(name, text) for name, text in parse_parameters(parameters).items()}
    profile = generate(kind, rounds, workers, seed, parameters_for(kind, overrides))
    save_profile(profile, destination)
    _tell(settings, profile, destination)


for made in (convert, generate):
    profile_command.add_command(made)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"-p {name}={text}: must be a number") from None


def _tell(settings: Settings, profile: DelayProfile, destination: Path) -> None:
    document: dict[str, Any] = {
        "profile": str(destination),
        "rounds": profile.rounds,
        "workers": profile.workers,
        "load": profile.load,
        "slope_s": profile.slope_s,
        "failed": int(profile.failed.sum()),
        "cold": int(profile.cold.sum()),
    }
    if settings.json:
        print_json(document)
        return
    size = f"{profile.rounds} rounds of {profile.workers} workers, {document['failed']} failed invocations"
    stdout().print(facts([("profile", size), ("written to", str(destination))]))
