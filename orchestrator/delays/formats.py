"""Delay profiles in files: `.npz` (ours, and the published traces') and CSV, read and written; a run's record, read.

    .npz    arrays `delays` (float32 or float64, rounds x workers, seconds), `cold`, `failed` (booleans);
            scalars `load`, `base_load`, `slope_s`, `name`, `scales` (true: delays are in proportion to the load). All
            but `delays` may be missing; others are ignored.
            Where `failed` is true, the delay says after how long the failure was found; inf: at the function's
            timeout. No pickles, neither way.
    .csv    one line per round, one delay in seconds per worker; an empty cell or `inf` is a failed invocation, found at
            the timeout. A first line with a cell that is neither is a header. Holds delays alone: no load, no marks of
            cold starts, no word on when failures were found.
    .jsonl  the record of a run, see `from_record.py`.

A published trace counts its failures in a scalar `failed` and holds only the invocations that succeeded.
Read next: `profile.py`.
"""

from __future__ import annotations

import csv
import math
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gradmux.orchestrator.delays.from_record import from_record
from gradmux.orchestrator.delays.profile import MATRIX_DIMENSIONS, BoolArray, DelayProfile
from gradmux.orchestrator.disk import require_writable
from gradmux.orchestrator.errors import ConfigError

WRITTEN = (".npz", ".csv")
ROUND_NAMES = {"round", "step", "iteration", "iter", "epoch", "t"}
WORKER_NAMES = {"worker", "rank", "node", "worker_id", "index", "i"}
"""heads of columns in tables with one line per answer"""


def load_profile(path: Path | str) -> DelayProfile:
    """The profile in a file, read by its suffix; named after the file when it carries no name. Raises ConfigError."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no delay profile at {path}")
    match path.suffix.lower():
        case ".npz":
            return _read_npz(path)
        case ".csv":
            return _read_csv(path)
        case ".jsonl":
            return from_record(path)
    raise ConfigError(f"{path.name}: a delay profile is a .npz file, a .csv file or a run's record (.jsonl)")


def save_profile(profile: DelayProfile, path: Path | str) -> None:
    """Writes the profile in the format of the path's suffix, replacing the file. Raises ConfigError.

    `.npz` keeps everything, to the bit; `.csv` keeps the delays alone, to the bit.
    """
    target = profile_path(path)
    try:
        _write_npz(profile, target) if target.suffix.lower() == ".npz" else _write_csv(profile, target)
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror or error}") from error


def profile_path(path: Path | str) -> Path:
    """`path`, if a profile can be written there. Raises: ConfigError in one line."""
    target = Path(path)
    if target.suffix.lower() not in WRITTEN:
        raise ConfigError(f"{target.name}: a delay profile is written as .npz or .csv")
    require_writable(target)
    return target


def _read_npz(path: Path) -> DelayProfile:
    arrays = _arrays(path)
    if "delays" not in arrays:
        raise ConfigError(f"{path.name} has no array `delays`; it has {', '.join(sorted(arrays)) or 'nothing'}")
    delays = arrays["delays"]
    if delays.dtype.kind not in "fiu":
        raise ConfigError(f"{path.name}: `delays` must be numbers, got {delays.dtype}")
    return DelayProfile(
        delays.astype(np.float64),
        load=_figure(arrays, "load", path) or 0.0,
        slope_s=_figure(arrays, "slope_s", path),
        base_load=_figure(arrays, "base_load", path),
        cold=_marks(arrays, "cold"),
        failed=_marks(arrays, "failed"),
        scales=_scales(arrays, path),
        name=str(arrays["name"]) if "name" in arrays else path.stem,
    )


def _arrays(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path.name} is not a readable .npz file: {error}") from error


def _figure(arrays: dict[str, npt.NDArray[np.generic]], name: str, path: Path) -> float | None:
    if name not in arrays:
        return None
    if arrays[name].size != 1 or arrays[name].dtype.kind not in "fiu":
        raise ConfigError(f"{path.name}: `{name}` must be one number")
    return float(arrays[name].item())


def _scales(arrays: dict[str, npt.NDArray[np.generic]], path: Path) -> bool:
    if "scales" not in arrays:
        return False
    if arrays["scales"].size != 1 or arrays["scales"].dtype.kind != "b":
        raise ConfigError(f"{path.name}: `scales` must be one truth value")
    return bool(arrays["scales"].item())


def _marks(arrays: dict[str, npt.NDArray[np.generic]], name: str) -> BoolArray:
    """A matrix of marks, or none when the file has a count (as the published traces do) or nothing."""
    marks = arrays.get(name)
    if marks is None or marks.ndim != MATRIX_DIMENSIONS:
        return np.zeros((0, 0), dtype=np.bool_)
    return marks.astype(np.bool_)


def _write_npz(profile: DelayProfile, path: Path) -> None:
    figures = {"load": profile.load, "base_load": profile.reference_load()}
    if profile.slope_s is not None:
        figures["slope_s"] = profile.slope_s
    np.savez_compressed(
        path,
        allow_pickle=False,
        delays=np.where(profile.failed, profile.found_s, profile.delays_s),
        cold=profile.cold,
        failed=profile.failed,
        name=np.array(profile.name),
        scales=np.array(profile.scales),
        **{name: np.array(value) for name, value in figures.items()},
    )


def _read_csv(path: Path) -> DelayProfile:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [(reader.line_num, row) for reader in [csv.reader(file)] for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path.name} is not a readable CSV file: {error}") from error
    if lines and not all(_is_delay(cell) for cell in lines[0][1]):
        _refuse_long_header(lines[0][1], path)
        lines = lines[1:]
    if not lines:
        raise ConfigError(f"{path.name} holds no delays")
    width = len(lines[0][1])
    return DelayProfile(np.array([_delays(row, width, number, path) for number, row in lines]), name=path.stem)


def _refuse_long_header(cells: list[str], path: Path) -> None:
    """A head that names rounds and workers as columns is that of a table with one line per answer."""
    names = {cell.strip().lower() for cell in cells}
    if names & ROUND_NAMES and names & WORKER_NAMES:
        named = ", ".join(cell.strip() for cell in cells)
        raise ConfigError(
            f"{path.name} has columns {named}, one line per answer: give one line per round, with one delay in seconds "
            "per worker"
        )


def _delays(row: list[str], width: int, number: int, path: Path) -> list[float]:
    if len(row) != width:
        raise ConfigError(f"{path.name}, line {number}: {len(row)} delays, but the first round has {width}")
    for cell in row:
        if not _is_delay(cell):
            raise ConfigError(f"{path.name}, line {number}: {cell!r} is not a delay in seconds")
    return [float(cell) if cell.strip() else math.inf for cell in row]


def _is_delay(cell: str) -> bool:
    """A number or an empty cell. `nan` passes here, and the profile itself refuses it by round and worker."""
    try:
        float(cell.strip() or "inf")
    except ValueError:
        return False
    return True


def _write_csv(profile: DelayProfile, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(profile.delays_s.tolist())
