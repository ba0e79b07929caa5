"""`gradmux tune`: the scheme, its parameters and the number of workers for a job, from a delay profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from gradmux.cli.closing import closing_options
from gradmux.cli.numbers import TIMEOUT_HELP, FiniteFloat, HourUsd
from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import facts, print_json, stderr, stdout, table
from gradmux.orchestrator.closing import TIMEOUT_S
from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from gradmux.orchestrator.closing import Closing
    from gradmux.orchestrator.tune import Choice, TuneResult

COLUMNS = ("scheme", "parameters", "n", "time s", "load x n", "in flight", "billed s", "cost $")
RIGHT = COLUMNS[2:]
FRONT_SHOWN = 8


@command("tune", example="gradmux tune measured.npz --models 4 --concurrency 256 --slope 1.1 --plot front.png")
@click.argument("profile")
@click.option("--jobs", default=100, show_default=True, type=click.IntRange(1), help="J, gradients to judge by.")
@click.option("--models", default=4, show_default=True, type=click.IntRange(1), help="M, models side by side.")
@click.option("--concurrency", type=click.IntRange(1), help="C, invocations in flight (else 1,000, or the columns).")
@click.option("--workers", default="auto", show_default=True, metavar="auto|N,N,...", help="n to try.")
@click.option("--passes", type=click.IntRange(1), help="P, passes of a batch: loads are multiples of 1/P (else any).")
@click.option("--slope", "slope_s", type=FiniteFloat(0), help="Seconds per unit of load (else the profile's own).")
@click.option("--base-load", type=FiniteFloat(0), help="Load that the delays stand for (else the profile's own).")
@click.option("--max-load", type=FiniteFloat(0), help="Largest load, as a multiple of 1/n.")
@click.option(
    "--hour-usd",
    type=HourUsd(),
    help="V, dollars that an hour of waiting is worth: the bill plus V times the time is least.  [default: 10]",
)
@click.option("--objective", type=click.Choice(["time", "cost"]), help="--hour-usd inf, or 0.")
@click.option("--here", "here_s", type=FiniteFloat(0), help="Seconds that this machine takes for a whole batch.")
@click.option("--parameters", default=0, show_default=True, type=click.IntRange(0), help="p of a model: what travels.")
@click.option("--schemes", metavar="NAME,NAME,...", help="Only these (else all that can be tuned).")
@closing_options()
@click.option("--attempts", default=3, show_default=True, type=click.IntRange(1), help="Tries per worker and round.")
@click.option("--timeout-s", default=TIMEOUT_S, show_default=True, type=FiniteFloat(0.001), help=TIMEOUT_HELP)
@click.option("--memory-mb", default=2048, show_default=True, type=click.IntRange(128, 10240), help="Of a worker.")
@click.option("--arm", is_flag=True, help="Workers are arm64 functions, which cost less.")
@click.option(
    "--prices", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A table of prices in TOML."
)
@click.option("--resamples", default=20, show_default=True, type=click.IntRange(0), help="Resampled profiles.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draws the front: .png or .svg.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@pass_settings
def tune_command(
    settings: Settings,
    profile: str,
    jobs: int,
    models: int,
    concurrency: int | None,
    workers: str,
    passes: int | None,
    slope_s: float | None,
    base_load: float | None,
    max_load: float | None,
    hour_usd: float | None,
    objective: Literal["time", "cost"] | None,
    here_s: float | None,
    parameters: int,
    schemes: str | None,
    closing: Closing,
    attempts: int,
    timeout_s: float,
    memory_mb: int,
    arm: bool,
    prices: Path | None,
    resamples: int,
    plot: Path | None,
    seed: int,
) -> None:
    """Search schemes, parameters and numbers of workers over PROFILE (a file, or a generator's name)."""
    from gradmux.orchestrator.delays.find import GENERATED_WORKERS, find_profile
    from gradmux.orchestrator.prices import PRICES, load_prices
    from gradmux.orchestrator.schemes.worth import waiting_usd
    from gradmux.orchestrator.tune import SCHEMES, TuneOptions, tune

    list_prices = PRICES if prices is None else load_prices(prices)
    options = TuneOptions(
        jobs=jobs,
        models=models,
        concurrency=concurrency,
        workers=_numbers(workers),
        slope_s=slope_s,
        base_load=base_load,
        max_load=max_load,
        hour_usd=waiting_usd(hour_usd, objective),
        here_s=here_s,
        parameters=parameters,
        schemes=SCHEMES if schemes is None else tuple(name.strip() for name in schemes.split(",")),
        closing=closing,
        attempts=attempts,
        timeout_s=timeout_s,
        memory_mb=memory_mb,
        prices=list_prices.for_arm() if arm else list_prices,
        resamples=resamples,
        seed=seed,
        passes=passes,
    )
    if plot is not None:
        from gradmux.orchestrator.delays.plots import picture_path

        picture_path(plot)  # a mistake in it is told before the search
    widest = max(GENERATED_WORKERS, *(options.workers or (0,)))
    result = tune(find_profile(profile, workers=widest, seed=seed), options, stderr(settings).print)
    if plot is not None:
        from gradmux.orchestrator.tune.plot import save_front

        save_front(result, plot)
    if settings.json:
        print_json(result.to_dict())
    else:
        _tell(result)
        for warning in result.warnings:
            stderr(settings).print(f"note: {warning}")


def _numbers(text: str) -> tuple[int, ...] | None:
    """`8,16` as numbers; None for `auto`. Raises: ConfigError in one line."""
    if text == "auto":
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--workers {text}: must be auto, or whole numbers with commas, for example 16,32") from error


def _tell(result: TuneResult) -> None:
    from gradmux.orchestrator.tune.tuner import thin

    by_hand = [_row(choice, name) for name, choice in result.baselines.items() if choice is not None]
    shown = thin(result.pareto, FRONT_SHOWN)
    console = stdout()
    console.print(table(COLUMNS, [_row(result.best)], title=f"chosen by {result.aim}", right=RIGHT))
    console.print(table(COLUMNS, [_row(choice) for choice in result.choices], title="best of each scheme", right=RIGHT))
    console.print(table(COLUMNS, by_hand, title="by hand", right=RIGHT))
    console.print(table(COLUMNS, [_row(choice) for choice in shown], title="faster costs more", right=RIGHT))
    console.print(facts(_figures(result)))
    for sentence in result.advice:
        console.print(sentence)


def _figures(result: TuneResult) -> list[tuple[str, str]]:
    told = [
        ("evaluated", f"{result.evaluated:,} parameter sets in {result.elapsed_s:.1f} s"),
        ("concurrency", f"C = {result.concurrency:,} invocations in flight at most, {result.models} models"),
    ]
    if result.best.spread is not None:
        spread = result.best.spread
        told.append(
            ("over resamples", f"{spread.mean_s:.2f} s, nine in ten {spread.low_s:.2f} to {spread.high_s:.2f} s")
        )
    if result.cross_validation is not None:
        loss = result.cross_validation.loss
        lost = "stops" if loss is None else f"loses {loss:.1%}"
        told.append(("cross-validation", f"{lost} on rounds that it was not tuned on"))
    return [*result.told(), *told]


def _row(choice: Choice, name: str | None = None) -> tuple[str, ...]:
    params = ", ".join(f"{key}={value}" for key, value in choice.params.items() if key != "per_job")
    return (
        name or (choice.scheme if choice.exact else f"{choice.scheme} (estimate)"),
        params,
        str(choice.workers),
        f"{choice.total_s:.2f}",
        f"{choice.load * choice.workers:.2f}",
        str(choice.in_flight_max),
        f"{choice.billed_s:.1f}",
        f"{choice.cost_usd:.4f}",
    )
