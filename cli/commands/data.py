"""`gradmux data`: looks at a data set, and packs it once and for all where jobs can name it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import facts, print_json, set_up_logging, stderr, stdout

declares = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of the section [data] of a job file: inputs, targets, weights, sampling, types, pad. Example: "
    '--set \'inputs=["age", "fare"]\'',
)


@click.group("data")
def data_command() -> None:
    """Look at data sets and prepare them for jobs."""


@command("show", example="gradmux data show digits:train")
@click.argument("source")
@declares
@pass_settings
def show(settings: Settings, source: str, overrides: Sequence[str]) -> None:
    """Tell rows, columns, types and classes of SOURCE, and which columns were taken: built-in, a file (.npz, .npy,
    .parquet, .csv), a folder, or s3://bucket/prefix."""
    from gradmux.orchestrator.runs.rows import load_source
    from gradmux.orchestrator.training.placing import described

    set_up_logging(settings)
    document = described(source, load_source(source, overrides))
    print_json(document) if settings.json else _tell(document)


@command("put", example="gradmux data put measurements.parquet s3://my-bucket/measurements")
@click.argument("source")
@click.argument("destination")
@declares
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", help="Of floating values.")
@pass_settings
def put(settings: Settings, source: str, destination: str, overrides: Sequence[str], dtype: str) -> None:
    """Check the rows of SOURCE and write them to DESTINATION, which jobs can then name.

    DESTINATION is a folder or s3://bucket/prefix, for shards with an index and checksums, or FILE.npz. What is there
    already is not written again.
    """
    from gradmux.cli.progress import counting
    from gradmux.orchestrator.runs.rows import load_source
    from gradmux.orchestrator.store import open_bucket
    from gradmux.orchestrator.training.placing import described, place, require_place

    set_up_logging(settings)
    require_place(destination)
    dataset = load_source(source, overrides, dtype)
    with counting(stderr(settings), "rows", dataset.rows) as told:
        place(dataset, destination, open_bucket, told)
    document = {**described(source, dataset), "destination": destination}
    print_json(document) if settings.json else _tell(document)


data_command.add_command(show)
data_command.add_command(put)


def _tell(document: dict[str, Any]) -> None:
    told = [("source", document["source"]), ("rows", f"{document['rows']:,}")]
    for name in document["columns"]:
        array = document[name]
        shape = " x ".join(map(str, array["shape"])) or "one value"
        told.append((name, f"{shape} a row, {array['dtype']}, {array['bytes'] / 2**20:.2f} MiB"))
    if "taken" in document:
        told.append(("taken", document["taken"]))
    if "classes" in document:
        counts = document["classes"].values()
        told.append(("classes", f"{len(counts)}, of {min(counts)} to {max(counts)} rows"))
    if "destination" in document:
        told.append(("written to", document["destination"]))
    stdout().print(facts(told))
