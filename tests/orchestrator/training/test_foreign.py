"""What a Python program holds, and what others have saved: converted once, row by row as its owner gives it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import Subset, TensorDataset

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.data import Dataset, load_dataset

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 0, 2])


class Squares(TorchDataset[Any]):
    """Counts how often each row is asked for."""

    def __init__(self, make: Callable[[int], Any], rows: int = 4) -> None:
        self._make, self._rows = make, rows
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> Any:
        self.asked.append(row)
        return self._make(row)


def test_tensor_data_sets() -> None:
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    assert load_dataset(TensorDataset(x, y)).digest == Dataset(X, Y).digest
    several = load_dataset(TensorDataset(x, 2 * x, y))
    assert [each.tolist() for each in several.x] == [X.tolist(), (2 * X).tolist()]
    alone = load_dataset(TensorDataset(x))
    assert alone.y is None
    assert torch.equal(alone.batch(slice(0, 4)).target, x)


def test_items_are_asked_for_once() -> None:
    source = Squares(lambda row: (X[row], int(Y[row])))
    assert load_dataset(source).digest == Dataset(X, Y).digest
    assert source.asked == [0, 1, 2, 3]
    assert load_dataset(Subset(source, [3, 1])).x.tolist() == X[[3, 1]].tolist()


@pytest.mark.parametrize(
    ("make", "x", "y"),
    [
        (lambda row: X[row], X, None),
        (lambda row: ((X[row], row), Y[row]), (X, np.arange(4)), Y),
        (lambda row: ({"a": X[row], "b": row}, (Y[row], 0.5)), {"a": X, "b": np.arange(4)}, (Y, np.full(4, 0.5))),
        (lambda row: {"pixels": X[row], "label": Y[row]}, {"pixels": X}, Y),
        (lambda row: (torch.tensor(X[row], dtype=torch.bfloat16), torch.tensor(Y[row])), X, Y),
    ],
)
def test_items_of_every_structure(make: Callable[[int], Any], x: Any, y: Any) -> None:
    found = load_dataset(Squares(make))
    for ours, given_ in ((found.x, x), (found.y, y)):
        assert type(ours) is type(given_)
        torch.testing.assert_close(ours, given_, check_dtype=False) if given_ is not None else None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda row: (X[row][: 3 - row % 2], 0), r"row 1: x has shape \(2,\), and \(3,\) in row 0"),
        (lambda row: (X[row], Y[row], 0), r"row 0 is a tuple of 3, expected \(input, target\)"),
        (lambda row: (X[row] / (row != 2), 0), r"row 2 holds (NaN|infinity)"),
        (lambda row: ("text", 0), r"row 0 holds text|x: holds text"),
        (lambda row: [][row], "row 0: IndexError"),
    ],
)
def test_items_that_are_no_rows_are_named(make: Callable[[int], Any], words: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(ConfigError, match=words) as caught:
        load_dataset(Squares(make))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ((X, Y, Y, Y), "got a tuple of 4"),
        ({"x": X, "y": Y}, "got a dict"),
        (7, "got a int"),
        ((np.ma.masked_greater(X, 5), Y), "some values are masked"),
        (((X, X[:3]), Y), r"x\.1 \(3, 3\).*must have the same number of rows"),
        ((X, Y, -np.ones(4)), "weights"),
        ((X, Y, np.ones((4, 2))), "weights"),
    ],
)
def test_what_is_no_data_set(source: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_dataset(source)


def test_a_sparse_matrix_is_told_how_to_be_given() -> None:
    from scipy.sparse import csr_matrix

    with pytest.raises(ConfigError, match=r"give csr_matrix\.toarray\(\)"):
        load_dataset((csr_matrix(X), Y))


def test_mapped_arrays_are_read_through_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmux.orchestrator.training.foreign.SHARD_BYTES", 100)
    monkeypatch.setattr("gradmux.orchestrator.training.reading.SHARD_BYTES", 100)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: tmp_path / "cache")
    np.save(tmp_path / "x.npy", np.arange(300.0).reshape(100, 3))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = load_dataset((mapped, np.arange(100)))
    np.testing.assert_array_equal(found.x, mapped)
    assert list((tmp_path / "cache" / "spool").iterdir())


# --- images ------------------------------------------------------------------------------------------------------


def picture(file: Path, mode: str = "RGB", size: tuple[int, int] = (5, 4), value: int = 7) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(file)


def test_a_folder_of_images_by_class(tmp_path: Path) -> None:
    for number, (label, value) in enumerate([("cat", 1), ("cat", 2), ("dog", 3)]):
        picture(tmp_path / label / f"{number}.png", value=value)
    (tmp_path / "notes.txt").write_text("not an image")
    found = load_dataset(str(tmp_path))
    assert found.x.shape == (3, 3, 4, 5)
    assert found.x.dtype == np.uint8
    assert found.x[:, 0, 0, 0].tolist() == [1, 2, 3]
    assert found.y.tolist() == [0, 0, 1]
    assert found.told == "classes 0: cat, 1: dog"


def test_grey_images_have_one_channel_and_palettes_three(tmp_path: Path) -> None:
    picture(tmp_path / "grey" / "a" / "1.png", "L")
    picture(tmp_path / "palette" / "a" / "1.png", "P")
    assert load_dataset(str(tmp_path / "grey")).x.shape == (1, 1, 4, 5)
    assert load_dataset(str(tmp_path / "palette")).x.shape == (1, 3, 4, 5)


def test_images_that_do_not_fit_or_cannot_be_read_are_named(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png")
    picture(tmp_path / "a" / "2.png", size=(6, 4))
    with pytest.raises(ConfigError, match=r"row 1: x has shape \(3, 4, 6\), and \(3, 4, 5\) in row 0"):
        load_dataset(str(tmp_path))
    (tmp_path / "a" / "2.png").write_bytes(b"no image")
    with pytest.raises(ConfigError, match=r"2\.png: cannot be read"):
        load_dataset(str(tmp_path))


# --- files and frames that packages ship ---------------------------------------------------------------------------


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_diabetes])
def test_data_sets_of_scikit_learn(load: Callable[..., Any], tmp_path: Path) -> None:
    x, y = load(return_X_y=True)
    found = load_dataset((x, y))
    np.testing.assert_array_equal(found.x, x.astype("f4"))
    np.savez_compressed(tmp_path / "set.npz", x=x, y=y)
    assert load_dataset(str(tmp_path / "set.npz")).digest == found.digest


def test_csv_files_of_scikit_learn(tmp_path: Path) -> None:
    import sklearn.datasets

    from gradmux.orchestrator.training.taking import Declared

    file = Path(sklearn.datasets.__file__).parent / "data" / "iris.csv"
    lines = file.read_text().splitlines()
    (tmp_path / "iris.csv").write_text("\n".join(["a,b,c,d,label", *lines[1:]]))
    types = dict.fromkeys("abcd", "float64") | {"label": "int64"}
    found = load_dataset(str(tmp_path / "iris.csv"), declared=Declared(types=types))
    assert found.digest == load_dataset(load_iris(return_X_y=True)).digest


def test_saved_hugging_face_data_sets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"tokens": [[1, 2], [3, 4], [5, 6]], "label": [0, 1, 0], "text": ["a", "b", "c"]})
    made.save_to_disk(tmp_path / "set")
    with pytest.raises(ConfigError, match=r"column text holds text"):
        load_dataset(str(tmp_path / "set"))
    made.remove_columns("text").select([2, 0]).save_to_disk(tmp_path / "part")
    found = load_dataset(str(tmp_path / "part"))
    assert found.x.tolist() == [[5, 6], [1, 2]]
    assert found.y.tolist() == [0, 0]
    assert load_dataset(made.remove_columns("text").select([2, 0])).digest == found.digest
    datasets.DatasetDict({"train": made}).save_to_disk(tmp_path / "several")
    with pytest.raises(ConfigError, match="several/train"):
        load_dataset(str(tmp_path / "several"))


def test_saved_images_of_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    images = [Image.new("RGB", (5, 4), value) for value in (1, 2)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    datasets.Dataset.from_dict({"image": images, "label": [1, 0]}, features=features).save_to_disk(tmp_path / "set")
    found = load_dataset(str(tmp_path / "set"))
    assert found.x.shape == (2, 3, 4, 5)
    assert found.y.tolist() == [1, 0]


def test_data_frames(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3, 4], "y": [0, 1]}, index=[77, 88])
    found = load_dataset(frame)
    assert found.x.tolist() == [[1, 3], [2, 4]]
    frame.to_parquet(tmp_path / "f.parquet")
    assert load_dataset(str(tmp_path / "f.parquet")).digest == found.digest
    with pytest.raises(ConfigError, match=r"b: holds (text|Python objects)"):
        load_dataset(frame.assign(b=["u", "v"]))


# --- every type and layout of numpy --------------------------------------------------------------------------------

KINDS = [
    f"{order}{kind}" for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8") for order in "<>"
]


@st.composite
def any_array(draw: st.DrawFn, rows: int) -> np.ndarray:
    kind = np.dtype(draw(st.sampled_from([*KINDS, "?"])))
    values: Any = st.integers(0, 100).map(float) if kind.kind == "f" else st.integers(0, 100)
    shape = (rows, *draw(array_shapes(min_dims=0, max_dims=3, max_side=3)))
    made = draw(arrays(kind, shape, elements=st.booleans() if kind.kind == "b" else values))
    match draw(st.sampled_from(["C", "F", "strided", "reversed"])):
        case "F":
            return np.asfortranarray(made)
        case "strided":
            return np.repeat(made, 2, axis=0)[::2]
        case "reversed":
            return made[::-1]
    return made


@given(st.integers(1, 7).flatmap(lambda rows: st.tuples(any_array(rows), any_array(rows))), st.booleans())
def test_arrays_of_every_type_and_layout(
    tmp_path_factory: pytest.TempPathFactory, pair: tuple[np.ndarray, np.ndarray], packed: bool
) -> None:
    """In memory, as .npz, compressed or not, and as .npy: the same values, of types that torch computes with."""
    x, y = pair
    folder = tmp_path_factory.mktemp("arrays")
    (np.savez_compressed if packed else np.savez)(folder / "set.npz", x=x, y=y)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    found = load_dataset((x, y))
    np.testing.assert_array_equal(found.x, x)
    np.testing.assert_array_equal(found.y, y)
    assert found.x.dtype.isnative
    assert found.y.dtype.name in ("int64", "float32", "float16", "bool")
    batch = found.batch(np.arange(len(x))[::-1])
    np.testing.assert_array_equal(batch.inputs.numpy(), x[::-1].astype(batch.inputs.numpy().dtype))
    assert load_dataset(str(folder / "set.npz")).digest == found.digest
    assert load_dataset(str(folder / "x.npy")).digest == found.digest


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array(3.0), "a single value"),
        (np.zeros((0, 3)), "0 rows"),
        (np.zeros((4, 0)), "without values"),
        (np.array([{}, 1, 2, 3], dtype=object), "Python objects"),
        (np.zeros(4, dtype=[("a", "f4")]), "records"),
        (np.array(["2026-01-01"] * 4, dtype="M8[D]"), "dates"),
        (np.array([b"a"] * 4), "bytes"),
        (np.zeros(4, complex), "complex numbers"),
    ],
)
@pytest.mark.parametrize("way", ["memory", "npz", "npy"])
def test_arrays_of_no_use_are_named(array: np.ndarray, words: str, way: str, tmp_path: Path) -> None:
    source: Any = (array, Y[: len(array)] if array.ndim else Y)
    if way == "npz":
        np.savez(tmp_path / "set.npz", x=source[0], y=source[1])
    if way == "npy":
        np.save(tmp_path / "x.npy", source[0])
        np.save(tmp_path / "y.npy", source[1])
    with pytest.raises(ConfigError, match=words) as caught:
        load_dataset({"memory": source, "npz": str(tmp_path / "set.npz"), "npy": str(tmp_path / "x.npy")}[way])
    assert "x" in str(caught.value)
    assert "\n" not in str(caught.value)
