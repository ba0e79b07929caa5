"""`gradmux submit`: trains what a job file describes, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import Settings, command, pass_settings
from cli.output import facts, print_json, set_up_logging, stderr, stdout, table

if TYPE_CHECKING:
    from cli.preparation import Prepared
    from orchestrator.results import RunResult


def _print_schema(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from orchestrator.job_file import job_schema

        print_json(job_schema())
        ctx.exit()


@command("submit", example="gradmux submit job.toml --set training.steps=50 --set 'scheme={name=\"gc\", s=3}'")
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one key of the job file.")
@click.option("--dry-run", is_flag=True, help="Check everything, tell what would run, invoke nobody.")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of job files and exit.",
)
@pass_settings
def submit_command(settings: Settings, job: Path, overrides: tuple[str, ...], dry_run: bool) -> None:
    """Train the models that the file JOB describes; ends with their losses and where the weights lie."""
    from cli.places import open_bucket
    from cli.preparation import prepare_job
    from orchestrator.api import Materials
    from orchestrator.job_file import load_job

    set_up_logging(settings)
    config = load_job(job, overrides)
    prepared = prepare_job(config, Materials(), job.parent, open_bucket)
    if dry_run:
        plan = _plan(prepared)
        print_json(plan) if settings.json else stdout().print(
            facts([(key, _text(value)) for key, value in plan.items()])
        )
        return
    result = _run(settings, prepared)
    print_json(result.to_dict()) if settings.json else _tell(result)


def _run(settings: Settings, prepared: Prepared) -> RunResult:
    from cli.home import new_run
    from cli.places import open_place
    from cli.progress import run_progress
    from cli.wiring import run_job

    config, console = prepared.config, stderr(settings)
    with open_place(config) as place:
        paths = new_run(settings.home, config.name)
        console.print(f"{paths.run}: {place.describe()}")
        with run_progress(console, config.scheme.name, prepared.plan.jobs) as on_step:
            return run_job(prepared, place, paths, on_step).run


def _plan(prepared: Prepared) -> dict[str, Any]:
    """What would run."""
    config, scheme = prepared.config, prepared.scheme()
    return {
        "job": config.name,
        "backend": config.cluster.backend,
        "scheme": config.scheme.name,
        "params": dict(prepared.params),
        "workers": scheme.workers,
        "delay": scheme.delay,
        "rounds": scheme.rounds,
        "jobs": scheme.jobs,
        "models": [plan.name for plan in prepared.models],
        "steps": prepared.plan.steps,
        "rows": prepared.train.rows,
        "batch_size": prepared.order.batch_size,
        "chunks": len(scheme.chunk_sizes),
    }


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _tell(result: RunResult) -> None:
    rows = [
        (model.name, str(model.steps), f"{model.train_loss:.4f}", _percent(model.eval.get("accuracy")))
        for model in result.models
    ]
    console = stdout()
    console.print(table(("model", "steps", "train loss", "accuracy"), rows, right=("steps", "train loss", "accuracy")))
    told = [
        ("run", f"{result.run} ({result.scheme} {_text(dict(result.params))}, {result.workers} workers)"),
        ("time", f"{result.wall_s:.2f} s for {result.rounds} rounds"),
        ("billed", f"{result.billed_s:.1f} s in {result.invocations} invocations"),
        ("decode", f"residual at most {result.max_residual:.1e}, amplification at most {result.max_amplification:.2f}"),
        ("record", str(result.record)),
        ("weights", str(result.models[0].checkpoint.parent)),
    ]
    console.print(facts(told))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
