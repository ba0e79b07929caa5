"""`gradmux data`: looks at a data set, and brings it where jobs can name it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import facts, print_json, stdout
from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from gradmux.orchestrator.training.data import Dataset

MOST_CLASSES = 50
"""More different targets than this are not counted one by one."""


@click.group("data")
def data_command() -> None:
    """Look at data sets and prepare them for jobs."""


@command("show", example="gradmux data show digits:train")
@click.argument("source")
@pass_settings
def show(settings: Settings, source: str) -> None:
    """Tell rows, shapes and classes of SOURCE: built-in, .npz, .npy, .parquet, a folder, or s3://bucket/prefix."""
    document = _described(source, _load(source))
    print_json(document) if settings.json else _tell(document)


@command("put", example="gradmux data put measurements.parquet s3://my-bucket/measurements")
@click.argument("source")
@click.argument("destination")
@pass_settings
def put(settings: Settings, source: str, destination: str) -> None:
    """Check the rows of SOURCE and write them to DESTINATION, which jobs can then name: FILE.npz or s3://bucket/prefix."""
    if not destination.startswith("s3://"):
        _require_place(Path(destination))
    dataset = _load(source)
    written = _put_s3(dataset, destination) if destination.startswith("s3://") else _put_file(dataset, destination)
    document = {**_described(source, dataset), "destination": written}
    print_json(document) if settings.json else _tell(document)


data_command.add_command(show)
data_command.add_command(put)


def _load(source: str) -> Dataset:
    from gradmux.orchestrator.store import open_bucket
    from gradmux.orchestrator.training.data import load_dataset

    return load_dataset(source, open_bucket=open_bucket)


def _require_place(path: Path) -> None:
    from gradmux.orchestrator.disk import require_writable

    if path.suffix != ".npz":
        raise ConfigError(f"{path}: must end in .npz, or begin with s3://")
    require_writable(path)


def _put_file(dataset: Dataset, destination: str) -> str:
    Path(destination).write_bytes(_packed(dataset))
    return destination


def _put_s3(dataset: Dataset, destination: str) -> str:
    from gradmux.orchestrator.store import open_bucket

    bucket, _, prefix = destination.removeprefix("s3://").partition("/")
    key = prefix if prefix.endswith(".npz") else f"{prefix.rstrip('/')}/data.npz".lstrip("/")
    open_bucket(bucket).put(key, _packed(dataset))
    return f"s3://{bucket}/{key}"


def _packed(dataset: Dataset) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, x=dataset.x, y=dataset.y)
    return buffer.getvalue()


def _described(source: str, dataset: Dataset) -> dict[str, Any]:
    import numpy as np

    described: dict[str, Any] = {
        "source": source,
        "rows": dataset.rows,
        "x": {"shape": list(dataset.x.shape[1:]), "dtype": dataset.x.dtype.name, "bytes": dataset.x.nbytes},
        "y": {"shape": list(dataset.y.shape[1:]), "dtype": dataset.y.dtype.name, "bytes": dataset.y.nbytes},
    }
    if dataset.y.dtype.kind == "i":
        values, counts = np.unique(dataset.y, return_counts=True)
        if len(values) <= MOST_CLASSES:
            described["classes"] = {str(value): int(count) for value, count in zip(values, counts, strict=True)}
    return described


def _tell(document: dict[str, Any]) -> None:
    told = [("source", document["source"]), ("rows", f"{document['rows']:,}")]
    for name in ("x", "y"):
        array = document[name]
        shape = " x ".join(map(str, array["shape"])) or "one value"
        told.append((name, f"{shape} a row, {array['dtype']}, {array['bytes'] / 2**20:.2f} MiB"))
    if "classes" in document:
        counts = document["classes"].values()
        told.append(("classes", f"{len(counts)}, of {min(counts)} to {max(counts)} rows"))
    if "destination" in document:
        told.append(("written to", document["destination"]))
    stdout().print(facts(told))
