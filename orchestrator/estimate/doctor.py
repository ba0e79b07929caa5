"""The doctor's questions about a job: whose code it is, whether it can be prepared, how large its models are.

Where it runs, its backend examines. Read next: `Backend.examine`.
"""

from __future__ import annotations

from pathlib import Path

from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.findings import Finding, failure, warning, well
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.runs.ownership import distrust, files_of_job
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import open_bucket
from gradmux.orchestrator.training.memory import largest_bytes, memory_mb
from gradmux.orchestrator.training.models import prepare


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
