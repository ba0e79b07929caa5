"""`gradmux simulate`: one scheme over a delay profile, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gradmux.cli.closing import closing_options
from gradmux.cli.numbers import TIMEOUT_HELP, FiniteFloat, HourUsd
from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import facts, print_json, stderr, stdout, table
from gradmux.orchestrator.closing import TIMEOUT_S
from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from gradmux.orchestrator.closing import Closing
    from gradmux.orchestrator.schemes.scheme import FloatArray
    from gradmux.orchestrator.simulate import Repeated, Simulation, SimulationOptions

WORKER_MB = 2048
"""by which calls are priced"""


@command("simulate", example="gradmux simulate profile.npz --scheme m-sgc -p B=1 -p W=2 -p lambda=27 --jobs 80")
@click.argument("profile")
@click.option("--scheme", required=True, help="Its name; `gradmux schemes` lists them. `auto` chooses, as in a job.")
@click.option("-p", "parameters", multiple=True, metavar="KEY=VALUE", help="A parameter of the scheme: letter or name.")
@click.option("--jobs", default=100, show_default=True, type=click.IntRange(1), help="J, gradients to decode.")
@click.option("--models", type=click.IntRange(1), help="M, models side by side (else as few as the scheme needs).")
@click.option("--workers", type=click.IntRange(1), help="n, fewer than the profile has: drawn anew for each round.")
@click.option("--passes", type=click.IntRange(1), help="P, passes of a batch: loads are multiples of 1/P (else any).")
@click.option("--concurrency", type=click.IntRange(1), help="C, invocations in flight (else 1,000, or the columns).")
@closing_options()
@click.option("--attempts", default=3, show_default=True, type=click.IntRange(1), help="Tries per worker and round.")
@click.option("--timeout-s", default=TIMEOUT_S, show_default=True, type=FiniteFloat(0.001), help=TIMEOUT_HELP)
@click.option("--slope", "slope_s", type=FiniteFloat(0), help="Seconds per unit of load (else the profile's, or 0).")
@click.option("--base-load", type=FiniteFloat(0), help="Load that the delays stand for (else the profile's own).")
@click.option("--load", type=FiniteFloat(0), help="A fixed load instead of the assigned one.")
@click.option("--invoke-idle", is_flag=True, help="Wait for workers without a task, too, as published simulators do.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--repeat", default=1, type=click.IntRange(1), help="K runs, seeds from --seed on: their spread.")
@click.option("--hour-usd", type=HourUsd(), help="V, what an hour is worth to auto and pipeline-auto.  [default: 10]")
@pass_settings
def simulate_command(
    settings: Settings,
    profile: str,
    scheme: str,
    parameters: tuple[str, ...],
    jobs: int,
    models: int | None,
    workers: int | None,
    passes: int | None,
    concurrency: int | None,
    closing: Closing,
    attempts: int,
    timeout_s: float,
    slope_s: float | None,
    base_load: float | None,
    load: float | None,
    invoke_idle: bool,
    seed: int,
    repeat: int,
    hour_usd: float | None,
) -> None:
    """Play one scheme over PROFILE (a file, or a generator's name) and tell how long every round takes."""
    from gradmux.cli.arguments import parse_parameters
    from gradmux.orchestrator.delays.doubts import doubts
    from gradmux.orchestrator.delays.find import GENERATED_WORKERS, find_profile, profiles_by_seed
    from gradmux.orchestrator.fleets.profile_fleet import LoadModel
    from gradmux.orchestrator.policies import limits_of, usual_concurrency, wait_policy
    from gradmux.orchestrator.prices import PRICES, worth_of
    from gradmux.orchestrator.schemes import registry
    from gradmux.orchestrator.schemes.worth import waiting_usd
    from gradmux.orchestrator.simulate import SimulationOptions, simulate
    from gradmux.orchestrator.simulate import repeat as play

    auto = scheme == "auto"
    if auto and (parameters or closing.wait == "mu"):
        raise ConfigError("auto chooses scheme and parameters itself, and closes rounds early: leave out -p and --wait")
    if auto and repeat > 1:
        raise ConfigError("--repeat plays one scheme with fixed parameters: name one, or leave --repeat out")
    if invoke_idle and closing.wait != "mu":
        raise ConfigError("--invoke-idle makes rounds wait for idle workers, which only --wait mu does: add it")
    params = {} if auto else registry.parse_params(registry.get(scheme), parse_parameters(parameters))
    widest = workers or GENERATED_WORKERS
    found = find_profile(profile, workers=widest, seed=seed)
    concurrency = usual_concurrency(found.workers) if concurrency is None else concurrency
    options = SimulationOptions(
        jobs=jobs,
        models=models,
        wait=wait_policy(closing),
        limits=replace(limits_of(closing, concurrency), invoke_idle=invoke_idle, attempts=attempts),
        load=LoadModel.of(found, slope_s, base_load, load),
        failures=found.failures(timeout_s),
        workers=workers,
        passes=passes,
        seed=seed,
        worth=worth_of(PRICES, WORKER_MB, waiting_usd(hour_usd)),
    )
    if auto:
        _play_auto(settings, found.delays_s, options)
        return
    if repeat > 1:
        repeated = play(profiles_by_seed(profile, workers=widest, first=(seed, found)), scheme, params, options, repeat)
        print_json(repeated.to_dict()) if settings.json else _tell_spread(repeated)
    else:
        result = simulate(found.delays_s, scheme, params, options)
        print_json(result.to_dict()) if settings.json else _tell(result)
    for doubt in doubts(found, slope_s, timeout_s) if load is None else ():
        stderr(settings).print(f"note: {doubt}")


def _play_auto(settings: Settings, delays_s: FloatArray, options: SimulationOptions) -> None:
    from gradmux.orchestrator.auto.simulated import job_of, simulate_auto

    result = simulate_auto(delays_s, job_of(options, delays_s.shape[1]), options.load, failures=options.failures)
    if settings.json:
        print_json(result.to_dict())
        return
    _tell(result.whole)
    rows = [
        (f"{segment.begin} to {segment.end}", f"{segment.took_s:.2f}", segment.choice.describe())
        for segment in result.segments
    ]
    stdout().print(table(("steps", "time s", "scheme"), rows, title="what it chose", right=("time s",)))


def _tell_spread(repeated: Repeated) -> None:
    columns = ("mean", "sd", "min", "median", "max")
    labels = {"total_s": "time s", "billed_s": "billed s", "invocations": "invocations"}
    rows = [(labels[name], *(f"{of[column]:,.2f}" for column in columns)) for name, of in repeated.spread.items()]
    stdout().print(table(("", *columns), rows, title=f"{len(repeated.runs)} runs", right=columns))
    for seed, reason in repeated.stopped.items():
        stdout().print(f"the run with seed {seed} stopped: {reason}")


def _tell(result: Simulation) -> None:
    params = ", ".join(f"{name}={value}" for name, value in result.params.items())
    slowest_s = max(result.durations, default=0.0)
    told = [
        ("scheme", f"{result.scheme} {params}".strip()),
        ("workers, jobs, models", f"{result.workers}, {result.jobs}, {result.models}"),
        ("rounds", f"{result.rounds} (delay T = {result.delay})"),
        ("load", f"{result.load:.5f} of the batch per worker and round, at most"),
        ("time", f"{result.total_s:.3f} s; the slowest round {slowest_s:.3f} s"),
        ("waits", f"{result.waits} rounds waited for more workers than the straggler model allows"),
        ("dropped", f"{sum(map(len, result.dropped))} answers came after their round had closed"),
        ("in flight", f"{result.in_flight_mean:.1f} on average, {result.in_flight_max} at most{result.allowed}"),
        ("billed", f"{result.billed_s:.1f} s"),
        (
            "decodes",
            f"residual at most {result.max_residual:.1e}, amplification at most {result.max_amplification:.2f}",
        ),
    ]
    stdout().print(facts(told + result.noise))
