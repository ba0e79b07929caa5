"""`gradmux probe`: measures the delays of a job's own work, at several loads, and writes them as a profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json, set_up_logging, stderr, stdout, table
from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from gradmux.orchestrator.delays.probe import Probe

COLUMNS = ("load", "median s", "90 % s", "slowest s", "in worker s", "on the way s", "cold", "failed", "billed s")


@command("probe", example="gradmux probe job.toml --loads 0.01,0.05,0.2 --rounds 10 --out measured.npz")
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one key of the job file.")
@click.option("--loads", help="Fractions of one batch, smallest first (else 1/n, 4/n and 16/n).")
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="Rounds at each load.")
@click.option("--workers", type=click.IntRange(1), help="Invocations of one round (else the job's workers).")
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The profile: .npz or .csv."
)
@pass_settings
def probe_command(
    settings: Settings,
    job: Path,
    overrides: tuple[str, ...],
    loads: str | None,
    rounds: int,
    workers: int | None,
    out: Path,
) -> None:
    """Measure how long the workers of JOB take: real invocations of its first model on its data, nothing is trained.

    The profile holds delays at the smallest load, and the slope with which they grow; `gradmux tune` reads it.
    """
    from gradmux.orchestrator.delays.formats import profile_path, save_profile
    from gradmux.orchestrator.job_file import load_job
    from gradmux.orchestrator.materials import Materials
    from gradmux.orchestrator.runs.prepare import prepare_job
    from gradmux.orchestrator.runs.probe import plan_probe, probe_job
    from gradmux.orchestrator.store import open_bucket

    set_up_logging(settings)
    profile_path(out)  # calls cost money: a mistake in it is told before them
    prepared = prepare_job(load_job(job, overrides), Materials(), job.parent, open_bucket)
    plan, console = plan_probe(prepared, _loads(loads), rounds, workers), stderr(settings)
    of = rounds * len(plan.loads)
    with console.status("measuring") as status:
        found = probe_job(prepared, plan, lambda done: status.update(f"measuring: round {done} of {of}"), console.print)
    save_profile(found.profile(prepared.config.name), out)
    print_json({"profile": str(out), **found.to_dict()}) if settings.json else _show(found, out)


def _loads(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--loads {text!r}: give numbers with commas between, as in 0.01,0.05,0.2") from None


def _show(found: Probe, out: Path) -> None:
    rows = [one.to_dict() for one in found.measured]
    texts = [[f"{value:.4g}" for value in row.values()] for row in rows]
    stdout().print(table(COLUMNS, texts, right=COLUMNS))
    if found.fit is not None:
        stdout().print(f"a delay is {found.fit.base_s:.4g} s + {found.fit.slope_s:.4g} s x load; written to {out}")
    else:
        stdout().print(f"written to {out}")
