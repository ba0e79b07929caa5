"""`gradmux local`: the emulator as a service that outlives the terminal, for boto3 code of your own."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from gradmux.cli.numbers import FiniteFloat
from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import facts, print_json, stdout


@click.group("local")
def local_command() -> None:
    """Run the emulator as a service: Lambda and S3 on 127.0.0.1, for any AWS client."""


@command("up", example="gradmux local up --delays lambda-like --time-scale 0.1 --fault throttle=0.02")
@click.option(
    "--handler", default="gradmux.lambda_worker.handler:handler", show_default=True, metavar="MODULE:FUNCTION"
)
@click.option("--path", "paths", multiple=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--function", "function", default="gradmux-worker", show_default=True, help="Name of the Lambda function."
)
@click.option("--memory-mb", default=2048, show_default=True, type=click.IntRange(128, 10_240))
@click.option("--timeout-s", default=60.0, show_default=True, type=FiniteFloat(0, 900, min_open=True))
@click.option("--concurrency", default=1000, show_default=True, type=click.IntRange(1), help="Calls in flight at most.")
@click.option("--workers", default=0, show_default=True, type=click.IntRange(0), help="Started before the first call.")
@click.option("--delays", default="none", show_default=True, help="A profile's path, or a generator's name.")
@click.option(
    "--columns", default=256, show_default=True, type=click.IntRange(1), help="Workers that a generator makes."
)
@click.option("--time-scale", default=1.0, show_default=True, type=FiniteFloat(0, min_open=True))
@click.option("--fault", "faults", multiple=True, metavar="KIND=RATE", help="crash, oom, timeout, throttle, 500, ...")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--lambda-port", default=0, type=click.IntRange(0, 65_535), help="Else any free port.")
@click.option("--s3-port", default=0, type=click.IntRange(0, 65_535), help="Else any free port.")
@pass_settings
def up(
    settings: Settings,
    handler: str,
    paths: tuple[Path, ...],
    function: str,
    memory_mb: int,
    timeout_s: float,
    concurrency: int,
    workers: int,
    delays: str,
    columns: int,
    time_scale: float,
    faults: tuple[str, ...],
    seed: int,
    lambda_port: int,
    s3_port: int,
) -> None:
    """Start the emulator, or find it running, and print the line by which a shell reads its variables.

    They lead AWS clients to it, and hold its key, without which it answers no request: `eval "$(gradmux local up)"`.
    """
    from gradmux.cli.arguments import parse_faults
    from gradmux.infra.local import EmulatorConfig, detached
    from gradmux.infra.local.backend import delay_plan, emulator_errors, fault_plan

    with emulator_errors():
        config = EmulatorConfig(
            handler=handler,
            python_path=tuple(str(path.resolve()) for path in paths),
            function=function,
            memory_mb=memory_mb,
            timeout_s=timeout_s,
            concurrency=concurrency,
            warm=workers,
            delays=delay_plan(delays, workers=columns, time_scale=time_scale, seed=seed),
            faults=fault_plan(parse_faults(",".join(faults), "--fault"), seed=seed),
            lambda_port=lambda_port,
            s3_port=s3_port,
        )
        state = detached.up(settings.home, config)
    if settings.json:
        print_json(state.to_dict())
        return
    click.echo(f". {shlex.quote(str(state.environment_file))}")


@command("down", example="gradmux local down")
@pass_settings
def down(settings: Settings) -> None:
    """End the emulator and everything that it started; its S3 forgets what it held."""
    from gradmux.infra.local import detached
    from gradmux.infra.local.backend import emulator_errors

    with emulator_errors():
        ended = detached.down(settings.home)
    if settings.json:
        print_json({"ended": ended})
    else:
        click.echo("The emulator has ended." if ended else "No emulator was running.")


@command("status", example="gradmux local status --json")
@click.option("--show-secret", is_flag=True, help="Also print the variables with the key that clients sign with.")
@pass_settings
def status(settings: Settings, show_secret: bool) -> None:
    """Tell whether the emulator runs, where, and what it has done so far."""
    from gradmux.infra.local import detached

    state = detached.status(settings.home)
    if settings.json:
        print_json({"running": False} if state is None else state.to_dict(show_secret))
    elif state is None:
        click.echo("No emulator is running; `gradmux local up` starts one.")
    else:
        document = state.to_dict(show_secret)
        told = [(key, str(document[key])) for key in ("pid", "lambda_endpoint", "s3_endpoint", "environment_file")]
        told += list(state.environment().items()) if show_secret else []
        told += [(key.replace("_", " "), str(value)) for key, value in document["statistics"].items()]
        stdout().print(facts(told))


for made in (up, down, status):
    local_command.add_command(made)
