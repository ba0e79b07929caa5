"""A run that is to go on: found here or brought from its bucket, given new limits, and whose code that is.

Nothing of it has run yet when this is done, and nothing of torch is imported: what is wrong is told at once. Read
next: `keep.py`, which prepares the job again; `train.py`, which goes on with it.
"""

from __future__ import annotations

from pathlib import Path

from gradmux.orchestrator.runs.lock import busy, is_held
from gradmux.orchestrator.runs.mirror import bring_from_s3
from gradmux.orchestrator.runs.ownership import distrust_run
from gradmux.orchestrator.runs.paths import RunPaths, find_run

S3 = "s3://"


def find_again(run: str, home: Path) -> RunPaths:
    """A run by its name, its folder, or s3://BUCKET/runs/NAME, which is brought under `home`.

    Raises: ConfigError when there is none, RunBusy while another process runs it.
    """
    paths = bring_from_s3(run, home) if run.startswith(S3) else find_run(home, run, as_it_is=True)
    if not paths.result.exists() and is_held(paths.lock):
        raise busy(paths.run, paths.lock)  # before the job is prepared once more, which takes seconds
    return paths


def take_up(paths: RunPaths, max_cost_usd: float | None, deadline_s: float | None) -> str:
    """From now on the run has these limits (None: as before), and its folder is its owner's alone.

    Gives a warning of whose code it may be, empty where it is this user's own. Raises: FolderError, ConfigError,
    DiskError.
    """
    if max_cost_usd is not None or deadline_s is not None:
        from gradmux.orchestrator.runs.keep import set_limits  # imports torch

        set_limits(paths, max_cost_usd, deadline_s)
    warning = distrust_run(paths)
    find_run(paths.folder.parent.parent, str(paths.folder))
    return warning
