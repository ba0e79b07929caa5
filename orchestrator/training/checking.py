"""Arrays of any kind -> arrays of types that workers take; or one line that says which array, row and value is wrong.

Floats become the models' own type (halves stay halves: both sides widen them), integer targets int64, unsigned
integers that torch hardly computes with int64 as well. Nothing is rounded or dropped without a word. Knows no files.
Read `data.py` next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradmux.lambda_worker.layout import MAX_ROWS
from gradmux.lambda_worker.structure import INPUT, SAMPLING, TARGET, WEIGHT, role_of
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.dataset import Array, Arrays

WIDE_UNSIGNED = ("uint16", "uint32", "uint64")
HALF = "float16"
KINDS = {
    "M": "dates",
    "m": "time spans",
    "U": "text",
    "S": "bytes",
    "O": "Python objects",
    "V": "records",
    "c": "complex numbers",
}
"""what numpy's kinds of no use are called"""
ADVICE = {
    "M": "turn them into numbers first, such as seconds since 1970",
    "m": "turn them into numbers first, such as seconds",
    "U": "turn it into numbers first, such as classes or tokens",
    "S": "turn them into numbers first",
    "O": "give numbers of one type and lists of one length",
    "V": "give each field as an array of its own",
    "c": "give real and imaginary part as two arrays",
}


def as_array(values: Any, where: str) -> Array:
    """What a program holds, as an array: tensors, lists, arrays, columns of a DataFrame. Raises: ConfigError."""
    if hasattr(values, "detach"):
        return _from_tensor(values)
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise ConfigError(f"data {where}: is a sparse matrix; give {type(values).__name__}.toarray()")
    if np.ma.is_masked(values):
        raise ConfigError(f"data {where}: some values are masked; fill them first")
    if hasattr(values, "to_numpy"):  # pandas, polars, pyarrow
        values = values.to_numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ConfigError(f"data {where}: {str(error).partition(chr(10))[0]}") from error


def checked(arrays: Arrays, where: str, dtype: str, first_row: int = 0) -> Arrays:
    """Rows of types that workers take, under the same names; `first_row`: the number of the first of them.

    `where` names file or variable. Raises: ConfigError.
    """
    return {name: checked_array(array, name, f"{where}: {name}", dtype, first_row) for name, array in arrays.items()}


def checked_array(array: Array, name: str, where: str, dtype: str, first_row: int = 0) -> Array:
    """One of them; `where` names it in full. Raises: ConfigError."""
    kind = array.dtype.kind
    if kind in KINDS:
        raise ConfigError(f"data {where}: holds {KINDS[kind]} ({array.dtype}), no numbers: {ADVICE[kind]}")
    if kind == "f":
        return _finite(array, where, dtype, first_row)
    if kind == "u" and array.dtype.name in WIDE_UNSIGNED:
        array = _signed(array, where, first_row)
    if role_of(name) == TARGET and kind in "iu":
        return array.astype(np.int64)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def require_rows(arrays: Arrays, where: str) -> None:
    """Arrays that make a data set. Raises: ConfigError for other lengths, and for arrays or rows without values."""
    told = " and ".join(f"{name} {array.shape}" for name, array in arrays.items())
    if any(array.ndim == 0 for array in arrays.values()):
        raise ConfigError(f"data {where}: {told}: a single value has no rows; the first dimension counts the rows")
    if len({len(array) for array in arrays.values()}) != 1:
        raise ConfigError(f"data {where}: {told} must have the same number of rows")
    rows = len(next(iter(arrays.values())))
    if not 0 < rows <= MAX_ROWS:
        raise ConfigError(f"data {where}: {told}: {rows} rows; there must be one or more, and at most 2^32")
    if any(0 in array.shape for array in arrays.values()):
        raise ConfigError(f"data {where}: {told} have rows without values")
    if INPUT not in {role_of(name) for name in arrays}:
        raise ConfigError(f"data {where}: has no inputs")


def require_weights(arrays: Arrays, where: str) -> None:
    """Raises: ConfigError for weights that are no single number from 0 on for each row."""
    for name in (WEIGHT, SAMPLING):
        found = arrays.get(name)
        if found is not None and (found.ndim != 1 or found.dtype.kind not in "fiub" or found.min(initial=0) < 0):
            raise ConfigError(f"data {where}: weights {found.shape} must be one number of 0 or more for each row")


def _from_tensor(values: Any) -> Array:
    found = values.detach().cpu()
    if found.layout.__repr__() != "torch.strided":
        found = found.to_dense()
    if str(found.dtype) == "torch.bfloat16":
        found = found.float()
    array: Array = found.resolve_conj().resolve_neg().numpy()
    return array


def _signed(array: Array, where: str, first_row: int) -> Array:
    most = np.iinfo(np.int64).max
    if array.dtype.itemsize == 8 and array.size and array.max() > most:
        row = first_row + int(np.argwhere(array > most)[0][0])
        raise ConfigError(f"data {where}: row {row} holds {array.max()}, more than int64 can hold")
    return array.astype(np.int64)


def _finite(array: Array, where: str, dtype: str, first_row: int) -> Array:
    wanted = HALF if array.dtype.name == HALF else dtype
    with np.errstate(over="ignore"):
        cast = np.ascontiguousarray(array, dtype=wanted)
    good = np.isfinite(cast)
    if not good.all():
        place = tuple(np.argwhere(~good)[0])
        row = first_row + int(place[0]) if place else 0
        value = float(array[place])
        what = (
            "NaN" if np.isnan(value) else "infinity" if np.isinf(value) else f"{value:g}, more than {wanted} can hold"
        )
        raise ConfigError(f"data {where}: row {row} holds {what}")
    return cast
