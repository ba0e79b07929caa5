"""What a job needs besides its description: the user's functions and rows, kept in the folder of the run.

With them `resume` needs nothing but that folder: not the job file, not the user's modules, not the working directory.
Functions of installed packages are kept by name, others as cloudpickle wrote them, so a run's folder is to be trusted
as its user's own code is. Rows are kept as .npy; built-in and S3 data, and what is larger than `KEPT_BYTES`, by name
and digest. Read next: `life.py`.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.disk import DISK, Disk, write_whole
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.former import present_name, why_missing
from gradmux.orchestrator.runs.life import FolderError
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.store import digest

KEPT_BYTES = 1 << 30
"""Larger data sets are not copied: their path and digest are kept."""
FILE = "materials.json"


class Rows(Protocol):
    """A data set: `training.data.Dataset`."""

    @property
    def x(self) -> NDArray[Any]: ...
    @property
    def y(self) -> NDArray[Any]: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """What a run's folder holds."""

    code: Mapping[str, str | Callable[..., Any]]
    """role -> function, or "module:function" of an installed package"""
    arrays: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
    """"train", "eval" -> (x, y), where they were copied"""
    digests: Mapping[str, str]
    """"train", "eval" -> digest of the rows, wherever they are"""
    job: str = ""
    """digest of the job as it was submitted; empty in runs of older versions"""

    def check(self, part: str, rows: Rows) -> None:
        """Raises ConfigError when these are not the rows that the run began with."""
        if digest_of(rows) != self.digests[part]:
            raise ConfigError(f"the {part} rows are not those that the run began with: restore them, or submit anew")


def keep(
    paths: RunPaths,
    code: Mapping[str, str | bytes],
    rows: Mapping[str, Rows],
    copied: Iterable[str],
    disk: Disk = DISK,
    *,
    job: str = "",
) -> None:
    """Writes functions (as `training.code.ship_code` made them) and rows; those named in `copied` whole. `job`: digest.

    Raises: DiskError.
    """
    disk.make_folder(paths.materials)
    for part in copied:
        for name, array in (("x", rows[part].x), ("y", rows[part].y)):
            write_whole(_array_file(paths, part, name), _npy(array), disk)
    described = {
        "python": sys.version.split()[0],
        "code": {role: _packed(each) for role, each in code.items()},
        "rows": {part: digest_of(each) for part, each in rows.items()},
        "copied": sorted(copied),
        "job": job,
    }
    write_whole(paths.materials / FILE, [json.dumps(described, indent=1).encode()], disk)


def kept(paths: RunPaths) -> Kept:
    """What `keep` wrote. Runs the pickles in it. Raises FolderError, or ConfigError when one cannot be loaded here."""
    file = paths.materials / FILE
    try:
        fields = json.loads(file.read_bytes())
        copied = [str(part) for part in fields["copied"]]
        packed = {str(role): (str(each["kind"]), str(each["code"])) for role, each in fields["code"].items()}
        digests = {str(part): str(each) for part, each in fields["rows"].items()}
        python, job = str(fields["python"]), str(fields.get("job", ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FolderError(f"{file} cannot be read: restore the file, or submit the job again") from error
    arrays = {part: (_load(paths, part, "x"), _load(paths, part, "y")) for part in copied}
    return Kept({role: _unpacked(role, *each, python) for role, each in packed.items()}, arrays, digests, job)


def digest_of(rows: Rows) -> str:
    """SHA-256 of types, shapes and values."""
    described = [f"{array.dtype.str} {array.shape} {digest(_raw(array))}" for array in (rows.x, rows.y)]
    return digest("\n".join(described).encode())


def _packed(code: str | bytes) -> dict[str, str]:
    if isinstance(code, str):
        return {"kind": "name", "code": code}
    return {"kind": "pickle", "code": base64.b64encode(code).decode()}


def _unpacked(role: str, kind: str, code: str, python: str) -> str | Callable[..., Any]:
    if kind == "name":
        return code
    try:
        function: Callable[..., Any] = _Unpickler(io.BytesIO(base64.b64decode(code, validate=True))).load()
    except Exception as error:  # a pickle runs the user's own modules
        here = sys.version.split()[0]
        other = "" if python == here else f" (it was pickled by Python {python}, this is {here})"
        reason = str(error).partition("\n")[0]
        told = f"{type(error).__name__}: {reason}{other}{why_missing(error)}"
        raise ConfigError(f"{role} cannot be loaded here: {told}; submit the job again") from error
    return function


class _Unpickler(pickle.Unpickler):
    """Finds our own functions in pickles of runs that began when they had other names."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        return super().find_class(present_name(module_name), global_name)


def _array_file(paths: RunPaths, part: str, name: str) -> Path:
    return paths.materials / f"{part}.{name}.npy"


def _load(paths: RunPaths, part: str, name: str) -> NDArray[Any]:
    file = _array_file(paths, part, name)
    try:
        array = np.load(file, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("not one array")
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise FolderError(f"{file} cannot be read: restore the file, or submit the job again") from error
    return array


def _npy(array: NDArray[Any]) -> Iterator[bytes | memoryview]:
    """The bytes of an .npy file, without a copy of the array."""
    header = io.BytesIO()
    np.lib.format.write_array_header_2_0(header, np.lib.format.header_data_from_array_1_0(array))
    yield header.getvalue()
    yield _raw(array)


def _raw(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B")
