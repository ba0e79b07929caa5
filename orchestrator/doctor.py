"""What `gradmux doctor` finds of a job and of the backend where it would run, each as soon as it is found.

Whose code the job is, whether it can be prepared, how large its models are, is asked here; where it runs, its backend
examines. Read next: `Backend.examine`; `compare.py`, the look at what workers compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from gradmux.orchestrator.backends import Examination, find_backend
from gradmux.orchestrator.compare import compared
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.findings import Finding, failure, warning, well
from gradmux.orchestrator.job_file import load_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.runs.ownership import distrust, files_of_job
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import open_bucket
from gradmux.orchestrator.training.memory import largest_bytes, memory_mb
from gradmux.orchestrator.training.models import prepare

SERVICE, USUAL = "local", "aws"
"""the backend that `--local` means, and the one that is looked at where nothing names one"""


def examined(
    home: Path,
    job: Path | None,
    *,
    backend: str | None = None,
    local: bool = False,
    workers: int | None = None,
    named: Mapping[str, str | None],
    compare: bool = False,
) -> Iterator[Finding]:
    """Every finding. `named`: what to look at instead of the job's own; `compare`: train both ways instead.

    Raises: ConfigError for a job file that is none, PreflightError.
    """
    config, worker_mb = None if job is None else load_job(job), None
    findings: list[Finding] = []
    if job is not None and config is not None:
        findings, worker_mb = look_at_job(job, config)
    wanted = find_backend(SERVICE if local else backend or (USUAL if config is None else config.cluster.backend))
    yield from findings
    given = {key: value for key, value in named.items() if value}
    asked = Examination(home, config, worker_mb, workers, local, given)
    yield from compared(job, config, findings) if compare else wanted.examine(asked)


def look_at_job(path: Path, config: JobConfig) -> tuple[list[Finding], int | None]:
    """Whose code it is, whether it can be prepared, and what a worker takes for its largest model, if so: MB."""
    modules = sorted({model.factory.partition(":")[0] for model in config.models})
    reason = distrust(file for file in files_of_job(path, config) if file.exists())
    if reason:
        # Not even imported: that would run it.
        return [warning("code", reason, f"then make {path.parent} your own, and repeat")], None
    try:
        model_bytes = _largest_model(config, path.parent)
    except ConfigError as error:
        return [failure("job", str(error).partition("\n")[0], "gradmux submit --dry-run tells all of it")], None
    told = f"{path.name} with {', '.join(modules)}, largest model {model_bytes / 2**20:.2f} MB"
    return [well("job", told)], memory_mb(model_bytes)


def _largest_model(config: JobConfig, folder: Path) -> int:
    prepared = prepare_job(config, Materials(), folder, open_bucket)
    return largest_bytes(prepare(plan).module for plan in prepared.models)
