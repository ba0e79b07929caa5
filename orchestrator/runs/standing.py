"""Where a run stands that is to go on: its checkpoint, its record and its job, held against each other.

Whatever of them does not fit is found here, before a model is built or a worker invoked. The checkpoint is the truth
about the models: weights come from it alone, and are those of a run that went through. A record that ends before it has
lost history, not work: the run goes on from the checkpoint, which is said, and the next life's header says how much is
missing. A checkpoint of another run, or a job that does not fit, is refused. Read next: `keep.py`, which asks this.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.record import RecordError
from gradmux.orchestrator.runs.checkpoints import Checkpoints, saved_steps
from gradmux.orchestrator.runs.history import DONE, RUN, History, read_history
from gradmux.orchestrator.runs.life import FolderError, store_name
from gradmux.orchestrator.runs.paths import RunPaths

log = logging.getLogger(__name__)


def require_standing(paths: RunPaths, config: JobConfig) -> None:
    """Raises FolderError or ConfigError, in one line, when the run cannot go on; the log tells what it goes on without.

    `config`: the job as it is to go on.
    """
    history = require_readable(paths.record)
    if not paths.store_name.exists() and history.header is None:
        return  # it has never begun
    name = store_name(paths)
    _require_own_record(paths.record, history, name)
    names = tuple(model.name for model in config.expanded_models())
    manifest = Checkpoints(paths.checkpoints).newest_manifest(name)
    done = saved_steps(manifest, names)
    _require_enough_steps(paths, names, done, config.training.steps)
    limited = config.cluster.max_cost_usd is not None
    if manifest is None:
        _tell_if_begun_anew(paths, history)
    else:
        _tell_unrecorded(paths, names, done, unrecorded(history, done), limited)


def require_readable(record: Path) -> History:
    """Raises FolderError that says what to do when a run cannot go on because its record is damaged."""
    try:
        return read_history(record)
    except RecordError as error:
        remedy = "restore the file, or move it away: the run then goes on from its checkpoint, without its history"
        raise FolderError(f"{error}; {remedy}") from error


def unrecorded(history: History, done: Sequence[int]) -> tuple[int, ...]:
    """Steps of each model that are done by its checkpoint, and that no line of the record tells of."""
    told = [*history.steps, *(0,) * (len(done) - len(history.steps))]
    return tuple(max(0, steps - reached) for steps, reached in zip(done, told, strict=False))


def _require_own_record(record: Path, history: History, name: str) -> None:
    """Raises FolderError for the record of another run; those of older versions do not say whose they are."""
    header = history.header
    of = "" if header is None else header.extra.get(RUN, "")
    if of not in ("", name):
        raise FolderError(
            f"{record} is the record of another run ({str(of)[:60]!a}): restore this run's own, or move the file away: "
            "the run then goes on from its checkpoint, without its history"
        )


def _require_enough_steps(paths: RunPaths, names: Sequence[str], done: Sequence[int], steps: int) -> None:
    """Raises ConfigError when the job, which was edited, ends before the run does."""
    ahead = next((index for index, made in enumerate(done) if made > steps), None)
    if ahead is not None:
        raise ConfigError(
            f"{paths.job}: training.steps = {steps}, but model {names[ahead]!r} has made {done[ahead]} already, which "
            f"cannot be taken back: set it to {max(done)} or more, or submit a new job"
        )


def _tell_if_begun_anew(paths: RunPaths, history: History) -> None:
    header = history.header
    if header is not None and any(header.extra.get(DONE, ())):
        log.warning(
            "%s holds no checkpoint any more, though one was there when the run went on last: all steps are made, and "
            "paid, again; stop now and restore it to avoid that",
            paths.checkpoints,
        )


def _tell_unrecorded(
    paths: RunPaths, names: Sequence[str], done: Sequence[int], lost: Sequence[int], limited: bool
) -> None:
    if not any(lost):
        return
    model = max(range(len(lost)), key=lambda index: lost[index])
    budget = ", and cluster.max_cost_usd counts only what is recorded" if limited else ""
    log.warning(
        "%s ends before the checkpoint: %d of %d steps of model %r are not in it; the run goes on from the checkpoint, "
        "with the same weights, but figures of time and cost lack what was lost%s; to have them whole, stop now and "
        "restore the file",
        paths.record,
        lost[model],
        done[model],
        names[model],
        budget,
    )
