"""What a job needs besides its description: the user's functions and rows, kept in the folder of the run.

With them `resume` needs nothing but that folder: not the job file, not the user's modules, not the working directory.
Functions of installed packages are kept by name, others as cloudpickle wrote them, so a run's folder is to be trusted
as its user's own code is. Rows are kept in shards; built-in and S3 data, and what is larger than `KEPT_BYTES`, by name
and digest. Read next: `life.py`.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gradmux.orchestrator.disk import DISK, Disk, write_whole
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.former import present_name, why_missing
from gradmux.orchestrator.runs.former_rows import former_digest, former_rows
from gradmux.orchestrator.runs.life import FolderError
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.store import digest
from gradmux.orchestrator.training.dataset import Dataset
from gradmux.orchestrator.training.packing import SHARDS, Folder, open_folder

KEPT_BYTES = 1 << 30
"""Larger data sets are not copied: their path and digest are kept."""
FILE = "materials.json"
PARTS = ("train", "eval")
"""of the rows: each is a folder beside the file"""
KINDS = ("name", "pickle")
"""of functions"""
SEEDS = "names"
"""Models' random numbers are seeded by the models' names."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a run's folder holds."""

    code: Mapping[str, str | Callable[..., Any]]
    """role -> function, or "module:function" of an installed package"""
    rows: Mapping[str, Dataset]
    """"train", "eval", where they were copied"""
    digests: Mapping[str, str]
    """"train", "eval" -> digest of the rows, wherever they are"""
    job: str = ""
    """digest of the job as it was submitted; empty in runs of older versions"""
    seeds: str = SEEDS
    """by what models' random numbers are seeded; runs of older versions: by their places in the job"""

    def check(self, part: str, rows: Dataset) -> None:
        """Raises ConfigError when these are not the rows that the run began with."""
        wanted = self.digests.get(part)
        if rows.digest != wanted and former_digest(rows) != wanted:
            raise ConfigError(f"the {part} rows are not those that the run began with: restore them, or submit anew")


def keep(
    paths: RunPaths,
    code: Mapping[str, str | bytes],
    rows: Mapping[str, Dataset],
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
        rows[part].packed.put(Folder(paths.materials / part, disk))
    described = {
        "python": sys.version.split()[0],
        "code": {role: _packed(each) for role, each in code.items()},
        "rows": {part: each.digest for part, each in rows.items()},
        "copied": sorted(copied),
        "job": job,
        "seeds": SEEDS,
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
        seeds = str(fields.get("seeds", "places"))
        if not set(copied) <= set(PARTS) or any(kind not in KINDS for kind, _ in packed.values()):
            raise ValueError("neither such rows nor such functions are kept")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FolderError(f"{file} cannot be read: restore the file, or submit the job again") from error
    rows = {part: _rows_of(paths, part) for part in copied}
    return Kept({role: _unpacked(role, *each, python) for role, each in packed.items()}, rows, digests, job, seeds)


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


def _rows_of(paths: RunPaths, part: str) -> Dataset:
    """The rows that were copied, whole. Raises FolderError."""
    former = former_rows(paths.materials, part)
    if former is not None:
        return former
    folder = paths.materials / part
    try:
        source = open_folder(folder)
        for shard, name in enumerate(source.manifest.digests):
            if digest(source.shard(shard)) != name:
                raise ConfigError(f"data {folder / SHARDS / name}: is not what was written")
    except ConfigError as error:
        raise FolderError(f"{error}: restore the file, or submit the job again") from error
    return Dataset.over(source)
