"""A prepared job -> the folder of a new run -> the same job again, in another process or another working directory.

Knows no backend. Read next: `orchestrator/runs/materials.py`, then `train.py`.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.disk import DISK, Disk, write_whole
from gradmux.orchestrator.errors import GradmuxError, RunStopped
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.runs.life import FolderError, new_store_name
from gradmux.orchestrator.runs.materials import KEPT_BYTES, SEEDS, keep, kept
from gradmux.orchestrator.runs.paths import RunPaths, create_run
from gradmux.orchestrator.runs.prepare import Prepared, import_from, prepare_job
from gradmux.orchestrator.runs.rows import load_rows
from gradmux.orchestrator.runs.standing import require_standing
from gradmux.orchestrator.store import digest, open_bucket
from gradmux.orchestrator.training.code import ship_code
from gradmux.orchestrator.training.data import BUILT_IN, Dataset
from gradmux.orchestrator.training.models import own_code

log = logging.getLogger(__name__)

MODEL, OPTIMIZER, SCHEDULER, LOSS, TRANSFORM = "model ", "optimizer ", "scheduler ", "loss", "transform"
"""roles of the kept functions; a model's name follows"""
METRIC = "metric "
"""the same; its name follows"""
LIMITS = {"cluster": "max_cost_usd", "scheme": "deadline_s"}
"""what `set_limits` may change of a job, by section"""


def keep_job(prepared: Prepared, home: Path, folder: Path, disk: Disk = DISK) -> RunPaths:
    """The folder of a new run, with all that `prepare_again` needs. Relative paths were meant from `folder`.

    Raises: DiskError, ConfigError.
    """
    config = _with_absolute_paths(prepared.config, folder)
    rows: dict[str, Dataset] = {"train": prepared.train}
    if prepared.eval is not None:
        rows["eval"] = prepared.eval
    copied = [part for part in rows if _is_copied(_source(config, part), rows[part])]

    def fill(paths: RunPaths) -> None:
        job = config.model_dump_json(indent=2).encode()
        keep(paths, _code(prepared), rows, copied, disk, job=_digest(json.loads(job)))
        write_whole(paths.store_name, [new_store_name(config.name).encode()], disk)
        write_whole(paths.job, [job], disk)

    return create_run(home, config.name, fill, disk)


@contextmanager
def nothing_left_of_refused(paths: RunPaths) -> Iterator[None]:
    """A new run whose backend refuses it before anything is invoked leaves no folder: there is nothing to resume."""
    try:
        yield
    except RunStopped:
        raise
    except GradmuxError:
        if not paths.record.exists() or paths.record.stat().st_size == 0:
            shutil.rmtree(paths.folder, ignore_errors=True)
        raise


def prepare_again(paths: RunPaths) -> Prepared:
    """The job of a run, from nothing but its folder. Warns when the job was edited. Raises FolderError, ConfigError."""
    tree = _read_tree(paths)
    config = parse_job(tree, source=str(paths.job))
    require_standing(paths, config)
    held = kept(paths)
    if held.job and held.job != _digest(tree):
        log.warning("%s is not what was submitted: the run goes on as the file says now", paths.job)
    if held.seeds != SEEDS:
        log.warning(
            "the run began when random numbers were seeded by a model's place, and goes on with seeds by its name: "
            "dropout draws other numbers from here on than it would have drawn; submit the job again if that matters"
        )
    prepared = prepare_job(config, _materials(config, held.code, held.rows), paths.folder, open_bucket, again=True)
    held.check("train", prepared.train)
    if prepared.eval is not None:
        held.check("eval", prepared.eval)
    return prepared


def rows_again(paths: RunPaths) -> Dataset:
    """The rows that a run trains on, from nothing but its folder. Builds no model. Raises FolderError, ConfigError."""
    config, held = parse_job(_read_tree(paths), source=str(paths.job)), kept(paths)
    import_from(paths.folder)
    train, _ = load_rows(config, _materials(config, held.code, held.rows), paths.folder, open_bucket)
    held.check("train", train)
    return train


def read_job(paths: RunPaths) -> JobConfig:
    """What was submitted. Raises FolderError, ConfigError."""
    return parse_job(_read_tree(paths), source=str(paths.job))


def _read_tree(paths: RunPaths) -> dict[str, Any]:
    """job.json as it is."""
    try:
        tree = json.loads(paths.job.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise FolderError(f"{paths.job} cannot be read: restore the file, or submit the job again") from error
    if not isinstance(tree, dict):
        raise FolderError(f"{paths.job} does not describe a job: restore the file, or submit the job again")
    return tree


def _digest(tree: dict[str, Any]) -> str:
    """Of a job but for the limits that `resume` may change."""
    lasting = dict(tree)
    for section, changing in LIMITS.items():
        lasting[section] = {key: value for key, value in tree.get(section, {}).items() if key != changing}
    return digest(json.dumps(lasting, sort_keys=True).encode())


def set_limits(
    paths: RunPaths, max_cost_usd: float | None = None, deadline_s: float | None = None, disk: Disk = DISK
) -> None:
    """From its next life on the run may cost so much in all, and a round may take so long; None: as before.

    Raises: FolderError, ConfigError, DiskError.
    """
    config = read_job(paths)
    cluster = {} if max_cost_usd is None else {"max_cost_usd": max_cost_usd}
    scheme = {} if deadline_s is None else {"deadline_s": deadline_s}
    changed = config.model_copy(
        update={
            "cluster": config.cluster.model_copy(update=cluster),
            "scheme": config.scheme.model_copy(update=scheme),
        }
    )
    write_whole(paths.job, [changed.model_dump_json(indent=2).encode()], disk)


def fix_passes(paths: RunPaths, pass_rows: int, disk: Disk = DISK) -> None:
    """From its next life on all models of the run have passes of so many rows. Raises: FolderError, DiskError."""
    config = read_job(paths)
    training = config.training.model_copy(update={"pass_rows": pass_rows})
    changed = config.model_copy(update={"training": training})
    write_whole(paths.job, [changed.model_dump_json(indent=2).encode()], disk)


def _code(prepared: Prepared) -> dict[str, str | bytes]:
    code = {
        f"{MODEL}{plan.name}": ship_code(plan.factory, f"model {plan.name!r}", plan.carries) for plan in prepared.models
    }
    for plan in prepared.models:
        for part, own in own_code(plan).items():
            code[f"{part} {plan.name}"] = ship_code(own, f"model {plan.name!r}: {part}", plan.carries)
    for name, metric in prepared.models[0].metrics:
        if not (isinstance(metric, str) and ":" not in metric):
            code[f"{METRIC}{name}"] = ship_code(metric, f"metric {name}", prepared.models[0].carries)
    if prepared.train.preparation.code is not None:
        code[TRANSFORM] = prepared.train.preparation.code
    loss = prepared.models[0].loss
    return (
        code
        if isinstance(loss, str) and ":" not in loss
        else {**code, LOSS: ship_code(loss, LOSS, prepared.models[0].carries)}
    )


def _materials(config: JobConfig, code: Any, rows: Mapping[str, Dataset]) -> Materials:
    functions: dict[str, Callable[..., Any]] = {role: each for role, each in code.items() if callable(each)}
    names = [model.name for model in config.expanded_models()]

    def by_model(role: str) -> dict[str, Callable[..., Any]]:
        return {name: functions[f"{role}{name}"] for name in names if f"{role}{name}" in functions}

    return Materials(
        factories=by_model(MODEL),
        optimizers=by_model(OPTIMIZER),
        schedulers=by_model(SCHEDULER),
        loss=functions.get(LOSS),
        metrics={role.removeprefix(METRIC): each for role, each in functions.items() if role.startswith(METRIC)},
        transform=functions.get(TRANSFORM),
        train=rows.get("train"),
        eval=rows.get("eval"),
    )


def _source(config: JobConfig, part: str) -> str:
    """Rows that are split off lie where those lie that they are split from."""
    return str(config.data.train if config.data.validation is not None else getattr(config.data, part))


def _is_copied(source: str, rows: Dataset) -> bool:
    """Built-in data, S3's, and large files stay where they are; arrays of a Python program have no other place."""
    elsewhere = source in BUILT_IN or source.startswith("s3://")
    large = rows.bytes > KEPT_BYTES and Path(source).exists()
    return not elsewhere and not large


def _with_absolute_paths(config: JobConfig, folder: Path) -> JobConfig:
    parts = {part: getattr(config.data, part) for part in ("train", "eval")}
    found = {part: str((folder / name).resolve()) for part, name in parts.items() if name and (folder / name).exists()}
    return config.model_copy(update={"data": config.data.model_copy(update=found)})
