"""The rows of a job: what its section [data] names, or a Python program gave; split, and told in one line.

Knows neither models nor schemes. Read next: `prepare.py`, which calls it, and docs/data.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradmux.orchestrator.config import DataConfig, JobConfig
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.ports import Bucket
from gradmux.orchestrator.training.data import Dataset, load_dataset
from gradmux.orchestrator.training.split import split
from gradmux.orchestrator.training.taking import Declared, Pad

OpenBucket = Callable[[str], Bucket]


def load_rows(
    config: JobConfig, materials: Materials, folder: Path, open_bucket: OpenBucket
) -> tuple[Dataset, Dataset | None]:
    """(to train on, to judge by). Relative paths are meant from `folder`. Raises: ConfigError."""
    train = _load(materials.train, config.data.train, config, folder, open_bucket)
    judged = materials.eval if materials.eval is not None else config.data.eval
    if judged is not None:
        return train, _load(materials.eval, config.data.eval or "", config, folder, open_bucket)
    if config.data.validation is None:
        return train, None
    return split(train, config.data.validation, config.training.seed)


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


def _load(given: Any, named: str, config: JobConfig, folder: Path, open_bucket: OpenBucket) -> Dataset:
    source = _found(named, folder) if given is None else given
    return load_dataset(source, open_bucket, dtype=config.training.dtype, declared=declared(config.data))


def _found(source: str, folder: Path) -> str:
    """A relative path is meant from the job file's folder."""
    beside = folder / source
    return str(beside) if source and beside.exists() else source
