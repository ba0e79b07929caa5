"""The rows of a job: what its section [data] names, or a Python program gave; split, and told in one line.

Knows neither models nor schemes. Read next: `prepare.py`, which calls it, and docs/data.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gradmux.lambda_worker.transforms import Preparation, TransformError
from gradmux.orchestrator.config import DataConfig, JobConfig
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.job_file import parse_data
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.ports import Bucket
from gradmux.orchestrator.store import open_bucket
from gradmux.orchestrator.training.code import find_code, ship_code
from gradmux.orchestrator.training.data import Dataset, load_dataset
from gradmux.orchestrator.training.split import split
from gradmux.orchestrator.training.taking import Declared, Pad

OpenBucket = Callable[[str], Bucket]
TRIED_ROWS = 4


def load_rows(
    config: JobConfig, materials: Materials, folder: Path, open_bucket: OpenBucket
) -> tuple[Dataset, Dataset | None]:
    """(to train on, to judge by). Relative paths are meant from `folder`. Raises: ConfigError."""
    train = _load(materials.train, config.data.train, config, folder, open_bucket)
    judged: Dataset | None = None
    if materials.eval is not None or config.data.eval is not None:
        judged = _load(materials.eval, config.data.eval or "", config, folder, open_bucket)
    elif config.data.validation is not None:
        train, judged = split(train, config.data.validation, config.training.seed)
    return _prepared(train, config, materials), None if judged is None else _prepared(judged, config, None)


def load_source(source: str, overrides: Sequence[str], dtype: str = "float32") -> Dataset:
    """The rows of `source` without a job, with each `key=value` put over the section [data]. Raises: ConfigError."""
    return load_dataset(source, open_bucket, dtype=dtype, declared=declared(parse_data(source, overrides)))


def declared(data: DataConfig) -> Declared:
    """What a job says of its files."""
    return Declared(
        inputs=data.inputs,
        targets=data.targets,
        weights=data.weights,
        sampling=data.sampling,
        types=data.types,
        pad={name: Pad(each.length, each.value, each.mask) for name, each in data.pad.items()},
    )


def describe(train: Dataset, judged: Dataset | None) -> str:
    """What was taken, in one line."""
    told = f"{train.rows:,} rows of {train.describe()}"
    return told if judged is None else f"{told}; judged by {judged.rows:,} rows"


def _prepared(rows: Dataset, config: JobConfig, materials: Materials | None) -> Dataset:
    """With scale, mean, std and the transform of rows to train on; tried on the first. Raises: ConfigError."""
    data = config.data
    code = None if materials is None else materials.transform or data.transform
    function = None if code is None else find_code(code, "data.transform")
    shipped = None if code is None else ship_code(code, "data.transform")
    done = Preparation(data.scale or 1.0, data.mean or (), data.std or (), shipped, config.training.seed)
    if done == Preparation(seed=done.seed):
        return rows
    found = rows.prepared(done, function)
    try:
        found.batch(slice(0, min(TRIED_ROWS, rows.rows)))
    except TransformError as error:
        raise ConfigError(f"data.{str(error).partition(chr(10))[0]}") from error
    return found


def _load(given: Any, named: str, config: JobConfig, folder: Path, open_bucket: OpenBucket) -> Dataset:
    source = _found(named, folder) if given is None else given
    return load_dataset(source, open_bucket, dtype=config.training.dtype, declared=declared(config.data))


def _found(source: str, folder: Path) -> str:
    """A relative path is meant from the job file's folder."""
    beside = folder / source
    return str(beside) if source and beside.exists() else source
