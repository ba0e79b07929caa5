"""Tables that packages ship, as people hand them on: read, or refused in one line that names file and column.

Skipped where a package is not installed. What is refused holds text, has missing values, or is no table at all.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.data import load_dataset
from gradmux.orchestrator.training.taking import Declared

LOADERS = ("iris", "wine", "breast_cancer", "diabetes")


def folder_of(package: str, *below: str) -> Path:
    """Where a package's files lie; skips without it, or without them."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    folder = Path(spec.origin).parent.joinpath(*below)
    if not folder.is_dir():
        pytest.skip(f"this version of {package} has no {folder.name}")
    return folder


def outcome(source: Any, **declared: Any) -> str:
    """What was taken, or the one line that refuses it."""
    try:
        return load_dataset(source, declared=Declared(**declared)).describe()
    except ConfigError as error:
        told = str(error)
    assert "\n" not in told
    assert not isinstance(source, str) or source in told, "it names the file"
    return f"refused: {told}"


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("index", ["rows", "reversed", "named"])
def test_frames_of_scikit_learn_and_their_parquet_files(name: str, index: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    import sklearn.datasets

    frame = getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
    if index != "rows":
        frame = frame.set_index(frame.index[::-1])
    if index == "named":
        frame.index.name = "patient"
    frame.to_parquet(tmp_path / "frame.parquet")
    found = load_dataset(str(tmp_path / "frame.parquet"))
    x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    np.testing.assert_array_equal(found.x, x.astype("f4"))
    np.testing.assert_array_equal(found.y, y.astype(found.y.dtype))
    assert load_dataset(frame).digest == found.digest


def test_scikit_learns_csv_files_and_pictures_are_read_or_refused_in_one_line() -> None:
    folder = folder_of("sklearn", "datasets")
    for file in sorted(each for part in ("data", "images", "descr") for each in (folder / part).glob("*")):
        assert outcome(str(file)).startswith("refused: ")


def test_csv_files_of_statsmodels_by_their_own_columns(tmp_path: Path) -> None:
    """Each is declared by what pandas makes of it: numbers become inputs, all else is left out."""
    pandas = pytest.importorskip("pandas")
    read = 0
    for file in sorted(folder_of("statsmodels", "datasets").rglob("*.csv")):
        assert outcome(str(file)).startswith("refused: "), "types are to be declared"
        try:
            frame = pandas.read_csv(file)
        except ValueError:  # no UTF-8, or no table
            continue
        numbers = [name for name in frame if frame[name].dtype.kind in "if" and frame[name].notna().all()]
        if len(numbers) < 2 or any(name != name.strip() for name in frame.columns):
            continue
        *inputs, target = numbers
        types = dict.fromkeys(numbers, "float64")
        told = outcome(str(file), types=types, inputs=inputs, targets=target)
        assert told.startswith(f"x {len(inputs)} float32, y float32"), f"{file.name}: {told}"
        found = load_dataset(str(file), declared=Declared(types=types, inputs=inputs, targets=target))
        np.testing.assert_array_equal(found.x, frame[inputs].to_numpy().astype("f4"))
        read += 1
    assert read >= 10


def test_tables_of_statsmodels_as_parquet(tmp_path: Path) -> None:
    """Text and missing values are named with their column."""
    pandas = pytest.importorskip("pandas")
    for number, file in enumerate(sorted(folder_of("statsmodels", "datasets").rglob("*.csv"))):
        try:
            frame = pandas.read_csv(file)
        except ValueError:
            continue
        path = tmp_path / f"{number}.parquet"
        frame.to_parquet(path)
        told, text = outcome(str(path), targets=frame.columns[0]), frame.dtypes.map(lambda kind: kind.kind not in "ifb")
        if len(frame.columns) > 1 and (text.any() or frame.isna().any().any()):
            assert told.startswith("refused: "), file.name
        assert not told.startswith("refused") or "column" in told or "has" in told, told


@pytest.mark.parametrize("package", ["seaborn", "torchvision"])
def test_whatever_else_packages_ship_is_read_or_refused_in_one_line(package: str) -> None:
    folder = folder_of(package)
    kinds = (".npz", ".npy", ".parquet", ".csv", ".png", ".jpg", ".txt", ".json", ".pth")
    for file in sorted(each for each in folder.rglob("*") if each.suffix in kinds):
        outcome(str(file))
