"""Tables on disk -> blocks of columns: Parquet by pyarrow, CSV by pyarrow and a schema that the job declares.

What pandas wrote as its index numbers the rows, and is no data. Text, dates and the like are refused, one line with
file and column. Knows neither inputs nor targets. Read `reading.py` next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.dataset import BLOCK_BYTES, Array, Arrays
from gradmux.orchestrator.training.taking import Pad, mask_name

CSV_TYPES = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
PANDAS = b"pandas"
ADVICE = "turn it into numbers first, or leave it out with data.inputs"


class ParquetTable:
    """One Parquet file."""

    table = True

    def __init__(self, path: Path, where: str, pad: Mapping[str, Pad]) -> None:
        """Raises: OSError and ArrowInvalid (a ValueError) when it is no such file."""
        import pyarrow.parquet

        self._file = pyarrow.parquet.ParquetFile(path)
        self._where, self._pad = where, pad
        self.names = tuple(self._file.schema_arrow.names)
        self.index = pandas_index(self._file.schema_arrow)

    def blocks(self, names: Sequence[str]) -> Iterator[Arrays]:
        """Rows of these columns, some megabytes at a time. Raises: ConfigError."""
        schema = self._file.schema_arrow
        _require_once(names, schema.names, self._where)
        for name in names:
            require_numbers(schema.field(name), self._where)
        metadata = self._file.metadata
        size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        step = max(1, min(1 << 16, BLOCK_BYTES * max(1, metadata.num_rows) // max(1, size)))
        row = 0
        for batch in self._file.iter_batches(batch_size=step, columns=list(names), use_threads=False):
            yield columns_of(batch, names, self._where, row, self._pad)
            row += batch.num_rows


class CsvTable:
    """One CSV file, whose first line names its columns."""

    table = True

    def __init__(self, path: Path, where: str, types: Mapping[str, str], pad: Mapping[str, Pad]) -> None:
        """Raises: ConfigError for types that are missing or unknown."""
        self._path, self._where, self._types, self._pad = path, where, types, pad
        self.names, self.index = self._header(), ()
        if not types:
            raise ConfigError(
                f"data {where}: the types of its columns must be declared, for example data.types = "
                f'{{ {self.names[0]} = "float32" }}; it has {", ".join(self.names[:12])}'
            )
        for name, kind in types.items():
            if name not in self.names:
                raise ConfigError(f"data {where}: has no column {name}, which data.types names")
            if kind not in CSV_TYPES:
                raise ConfigError(f"data {where}: column {name}: type {kind!r}, expected one of {', '.join(CSV_TYPES)}")
        self.names = tuple(name for name in self.names if name in types)

    def blocks(self, names: Sequence[str]) -> Iterator[Arrays]:
        """Rows of these columns, some megabytes at a time. Raises: ConfigError."""
        import pyarrow as pa
        import pyarrow.csv

        convert = pyarrow.csv.ConvertOptions(
            column_types={name: pa.type_for_alias(self._types[name]) for name in names},
            include_columns=list(names),
            strings_can_be_null=True,
        )
        options = pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
        row = 0
        try:
            with pyarrow.csv.open_csv(self._path, read_options=options, convert_options=convert) as reader:
                for batch in reader:
                    yield columns_of(batch, names, self._where, row, self._pad)
                    row += batch.num_rows
        except pa.ArrowInvalid as error:
            raise ConfigError(f"data {self._where}: row {row} or after: {_csv_error(error)}") from error

    def _header(self) -> tuple[str, ...]:
        import pyarrow as pa
        import pyarrow.csv

        try:
            with pyarrow.csv.open_csv(self._path, read_options=pyarrow.csv.ReadOptions(block_size=1 << 20)) as reader:
                return tuple(reader.schema.names)
        except pa.ArrowInvalid as error:
            raise ConfigError(f"data {self._where}: {_csv_error(error)}") from error


def pandas_index(schema: Any) -> tuple[str, ...]:
    """The columns in which pandas has kept its index: they number the rows."""
    raw = (schema.metadata or {}).get(PANDAS)
    try:
        kept = orjson.loads(raw)["index_columns"] if raw else []
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ()
    return tuple(name for name in kept if isinstance(name, str) and name in schema.names)


def require_numbers(field: Any, where: str) -> None:
    """Raises: ConfigError that names the column and says what it holds."""
    import pyarrow.types as kinds

    kind = field.type
    while kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        kind = kind.value_type
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    storage = getattr(kind, "storage_type", None)
    if storage is not None or kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind):
        return
    if kinds.is_decimal(kind):
        return
    held = next((words for test, words in _told_kinds() if test(kind)), "values")
    raise ConfigError(f"data {where}: column {field.name} holds {held} ({field.type}), no numbers: {ADVICE}")


def _told_kinds() -> list[tuple[Any, str]]:
    import pyarrow.types as kinds

    return [
        (lambda kind: kinds.is_string(kind) or kinds.is_large_string(kind), "text"),
        (lambda kind: kinds.is_date(kind) or kinds.is_timestamp(kind), "dates"),
        (lambda kind: kinds.is_time(kind) or kinds.is_duration(kind), "times"),
        (lambda kind: kinds.is_binary(kind) or kinds.is_large_binary(kind), "bytes"),
        (kinds.is_null, "nothing but missing values"),
        (kinds.is_struct, "records"),
    ]


def columns_of(batch: Any, names: Sequence[str], where: str, first_row: int, pad: Mapping[str, Pad]) -> Arrays:
    """Columns of a record batch as arrays, and the masks of those that are padded. Raises: ConfigError."""
    found: dict[str, Array] = {}
    for name in names:
        column = batch.column(batch.schema.get_field_index(name))
        if name in pad:
            found[name], mask = _padded(column, name, where, first_row, pad[name])
            if pad[name].mask is not None:
                found[mask_name(name)] = mask
        else:
            found[name] = _dense(column, name, where, first_row)
    return found


def _dense(column: Any, name: str, where: str, first_row: int) -> Array:
    """(rows,) of numbers, or (rows, n, ...) of lists of one length."""
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.types as kinds

    if column.null_count:
        row = first_row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise ConfigError(f"data {where}: column {name} has no value in row {row} (missing values: fill them first)")
    if isinstance(column, pa.ExtensionArray):
        if hasattr(column, "to_numpy_ndarray"):
            return np.asarray(column.to_numpy_ndarray())
        column = column.storage
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kinds.is_decimal(column.type):
        column = column.cast(pa.float64())
    if not (kinds.is_list(column.type) or kinds.is_large_list(column.type) or kinds.is_fixed_size_list(column.type)):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    lengths = pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
    if len(set(lengths.tolist())) > 1:
        raise ConfigError(
            f"data {where}: column {name} holds lists of different lengths ({lengths.min()} to {lengths.max()}): pad "
            f"them with data.pad = {{ {name} = {{ length = {lengths.max()} }} }}"
        )
    values = _dense(column.flatten(), name, where, first_row)
    return values.reshape(len(column), int(lengths[0]) if len(lengths) else 0, *values.shape[1:])


def _padded(column: Any, name: str, where: str, first_row: int, pad: Pad) -> tuple[Array, Array]:
    """(rows, length) of lists filled at the end, and (rows, length) what of it is real."""
    import pyarrow.compute

    if column.null_count:
        _dense(column, name, where, first_row)  # says which row
    lengths = pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    if len(lengths) and lengths.max() > pad.length:
        row = first_row + int(lengths.argmax())
        raise ConfigError(
            f"data {where}: column {name}, row {row}: {lengths.max()} values, but length = {pad.length} in data.pad"
        )
    values = _dense(column.flatten(), name, where, first_row)
    mask = np.arange(pad.length) < lengths[:, None]
    filled = np.full((len(column), pad.length, *values.shape[1:]), pad.value, dtype=values.dtype)
    filled[mask] = values
    return filled, mask


def _require_once(names: Sequence[str], all_names: Sequence[str], where: str) -> None:
    twice = sorted({name for name in names if list(all_names).count(name) > 1})
    if twice:
        raise ConfigError(f"data {where}: has several columns named {twice[0]}; rename them")


def _csv_error(error: Exception) -> str:
    return str(error).partition("\n")[0].removeprefix("In ")
