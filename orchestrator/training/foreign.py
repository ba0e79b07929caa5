"""What others keep samples in -> data sets: arrays, tensors, torch data sets, DataFrames, Hugging Face, image folders.

    (x, y), (x, y, weights)         each an array, tensor or list; x and y also tuples or dicts of such
    TensorDataset                   its last tensor is the target, all before it the inputs
    torch Dataset, Subset           an item is (input, target), a dict with a target, or an input alone; each is asked
                                    for once, so random changes of it are drawn once: data.transform draws them anew
    DataFrame, datasets.Dataset     columns, as of a table on disk; their index is no data
    a folder of folders of images   one class for each folder, in the order of their names; uint8, channels first

What is more than a shard goes through disk, block by block. Knows no store. Read `data.py` next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradmux.lambda_worker.layout import SHARD_BYTES
from gradmux.lambda_worker.structure import INPUT, TARGET, WEIGHT, named
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.checking import as_array, checked, require_rows, require_weights
from gradmux.orchestrator.training.dataset import BLOCK_BYTES, Array, Arrays, Dataset, MemorySource
from gradmux.orchestrator.training.packing import INDEX
from gradmux.orchestrator.training.reading import gathered_blocks
from gradmux.orchestrator.training.tables import columns_of, pandas_index, require_numbers
from gradmux.orchestrator.training.taking import TARGET_NAMES, Declared, take

log = logging.getLogger(__name__)

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
HUGGING_FACE = ("dataset_info.json", "dataset_dict.json")
PAIR, TRIPLE = 2, 3
ITEMS = 256
"""of a torch data set that are stacked at once, at most"""


def from_python(source: Any, where: str, declared: Declared, dtype: str) -> Dataset:
    """What a program holds. Raises: ConfigError."""
    tensors = getattr(source, "tensors", None)
    if isinstance(tensors, tuple):
        x, y = (tensors[0], None) if len(tensors) == 1 else (_one_or_all(tensors[:-1]), tensors[-1])
        return from_arrays(x, y, None, where, dtype)
    if isinstance(source, tuple | list) and len(source) in (PAIR, TRIPLE):
        return from_arrays(source[0], source[1], source[2] if len(source) == TRIPLE else None, where, dtype)
    if hasattr(source, "column_names") and hasattr(source, "with_format"):
        return from_hugging_face(source, where, declared, dtype)
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        return _from_frame(source, where, declared, dtype)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, tuple | list | Mapping):
        return from_items(source, where, dtype)
    many = f" of {len(source)}" if isinstance(source, tuple | list) else ""
    raise ConfigError(
        f"data {where}: expected (x, y) of arrays or tensors, a torch Dataset, a DataFrame, a Hugging Face data set, "
        f"or a name as data.train of a job file has it, got a {type(source).__name__}{many}"
    )


def from_arrays(x: Any, y: Any, weights: Any, where: str, dtype: str) -> Dataset:
    """Arrays, or tuples or dicts of them, in memory; larger ones block by block. Raises: ConfigError."""
    given = {
        **_named(x, INPUT),
        **({} if y is None else _named(y, TARGET)),
        **({} if weights is None else {WEIGHT: weights}),
    }
    arrays = {name: as_array(values, f"{where}: {name}") for name, values in given.items()}
    require_rows(arrays, where)
    if sum(each.nbytes for each in arrays.values()) > SHARD_BYTES and any(map(_is_mapped, arrays.values())):
        return gathered_blocks(_blocks(arrays, where, dtype), where)
    found = checked(arrays, where, dtype)
    require_weights(found, where)
    return Dataset.over(MemorySource(found))


def from_items(source: Any, where: str, dtype: str) -> Dataset:
    """A torch Dataset, item by item, each asked for once. Raises: ConfigError."""
    total = len(source)

    def blocks() -> Iterator[Arrays]:
        kept: list[Mapping[str, Array]] = []
        for row in range(total):
            kept.append(_item(source, row, where))
            size = sum(each.nbytes for each in kept[0].values())
            if len(kept) * size >= BLOCK_BYTES or len(kept) == ITEMS or row == total - 1:
                yield checked(_stacked(kept, row + 1 - len(kept), where), where, dtype, row + 1 - len(kept))
                kept.clear()

    return gathered_blocks(blocks(), where)


def from_folder(path: Path, declared: Declared) -> Dataset | None:
    """A folder that is a saved Hugging Face data set, or holds images by class; None for any other."""
    if not path.is_dir() or (path / INDEX).exists():
        return None
    if any((path / name).exists() for name in HUGGING_FACE):
        return from_hugging_face(_saved(path), str(path), declared, "float32")
    classes = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files = [(file, label) for label, folder in enumerate(classes) for file in _images(folder)]
    if not files or any(entry.suffix in (".npz", ".npy", ".parquet", ".csv") for entry in path.iterdir()):
        return None
    return _from_images(path, files, [folder.name for folder in classes])


def from_hugging_face(source: Any, where: str, declared: Declared, dtype: str) -> Dataset:
    """A `datasets.Dataset`. Raises: ConfigError."""
    images = {name for name, kind in source.features.items() if type(kind).__name__ == "Image"}
    if images:
        return _from_pictures(source, sorted(images), where, declared, dtype)
    schema = source.features.arrow_schema
    taken = take(source.column_names, pandas_index(schema), declared, where, table=True)
    for name in taken.names:
        require_numbers(schema.field(name), where)
    arrow = source.select_columns(taken.names).with_format("arrow")

    def blocks() -> Iterator[Arrays]:
        row = 0
        for table in arrow.iter(batch_size=ITEMS * 4):
            for batch in table.combine_chunks().to_batches():
                found = columns_of(batch, taken.names, where, row, declared.pad)
                yield checked(taken.assemble(found, where), where, dtype, row)
                row += batch.num_rows

    return gathered_blocks(blocks(), where, taken.told())


def _from_pictures(source: Any, images: Sequence[str], where: str, declared: Declared, dtype: str) -> Dataset:
    """One with a column of images: that is the input, the label the target."""
    labels = [name for name in source.column_names if name in TARGET_NAMES]
    if declared.inputs is None and (len(images) != 1 or len(labels) != 1):
        raise ConfigError(
            f"data {where}: has {', '.join(source.column_names)}: say which with data.inputs and data.targets"
        )
    x = declared.inputs if isinstance(declared.inputs, str) else images[0]
    y = declared.targets if isinstance(declared.targets, str) else labels[0]

    class Items:
        def __len__(self) -> int:
            return len(source)

        def __getitem__(self, row: int) -> tuple[Any, Any]:
            item = source[row]
            return item[x], item[y]

    found = from_items(Items(), where, dtype)
    return Dataset.over(found.source, f"x from {x}, y from {y}")


def _from_images(path: Path, files: Sequence[tuple[Path, int]], classes: Sequence[str]) -> Dataset:
    class Items:
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, row: int) -> tuple[Any, int]:
            file, label = files[row]
            return _picture(file), label

    found = from_items(Items(), str(path), "float32")
    return Dataset.over(found.source, f"classes {', '.join(f'{label}: {name}' for label, name in enumerate(classes))}")


def _from_frame(frame: Any, where: str, declared: Declared, dtype: str) -> Dataset:
    """A DataFrame in memory; its index is no data."""
    names = [str(name) for name in frame.columns]
    columns = {str(name): frame[name] for name in frame.columns}
    taken = take(names, (), declared, where, table=True)
    found = {name: as_array(columns[name], f"{where}: column {name}") for name in taken.names}
    for name, array in found.items():
        checked({name: array}, f"{where}: column", dtype)
    arrays = checked(taken.assemble(found, where), where, dtype)
    require_rows(arrays, where)
    return Dataset.over(MemorySource(arrays), taken.told())


def _saved(path: Path) -> Any:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data {path}: is a saved Hugging Face data set, which the package datasets reads: "
            "pip install 'gradmux[datasets]'"
        ) from None
    found = datasets.load_from_disk(str(path))
    if hasattr(found, "keys"):
        raise ConfigError(f"data {path}: holds several data sets: name one, such as {path}/{next(iter(found))}")
    return found


def _images(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_ENDINGS)


def _picture(file: Path) -> Array:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return _pixels(image)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ConfigError(f"data {file}: cannot be read: {str(error).partition(chr(10))[0]}") from error


def _pixels(image: Any) -> Array:
    """(channels, height, width) uint8; palettes and transparency become RGB, grey images stay grey."""
    if image.mode in ("1", "I;16", "I", "F", "LA"):
        image = image.convert("L")
    elif image.mode not in ("L", "RGB"):
        image = image.convert("RGB")
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _item(source: Any, row: int, where: str) -> Mapping[str, Array]:
    """One row, by the names of the data set."""
    try:
        item = source[row]
    except ConfigError:
        raise
    except Exception as error:  # the user's own code
        raise ConfigError(
            f"data {where}: row {row}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        ) from error
    if isinstance(item, Mapping):
        target = [name for name in TARGET_NAMES if name in item]
        inputs = {name: value for name, value in item.items() if name not in target[:1]}
        parts = {**_named(inputs, INPUT), **({TARGET: item[target[0]]} if target else {})}
    elif isinstance(item, tuple | list) and len(item) == PAIR:
        parts = {**_named(item[0], INPUT), **_named(item[1], TARGET)}
    elif isinstance(item, tuple | list):
        raise ConfigError(
            f"data {where}: row {row} is a tuple of {len(item)}, expected (input, target); each may be a tuple"
        )
    else:
        parts = {INPUT: item}
    return {name: _value(value, f"{where}: row {row}: {name}") for name, value in parts.items()}


def _value(value: Any, where: str) -> Array:
    if hasattr(value, "convert") and hasattr(value, "mode"):  # an image of PIL
        return _pixels(value)
    return as_array(value, where)


def _stacked(items: Sequence[Mapping[str, Array]], first_row: int, where: str) -> Arrays:
    first = items[0]
    for number, item in enumerate(items):
        for name, array in item.items():
            if name not in first or first[name].shape != array.shape or len(item) != len(first):
                shape = first[name].shape if name in first else "nothing"
                raise ConfigError(
                    f"data {where}: row {first_row + number}: {name} has shape {array.shape}, and {shape} in row "
                    f"{first_row}: bring all rows to one shape first"
                )
    return {name: np.stack([item[name] for item in items]) for name in first}


def _blocks(arrays: Arrays, where: str, dtype: str) -> Iterator[Arrays]:
    rows = len(next(iter(arrays.values())))
    step = max(1, BLOCK_BYTES * rows // sum(each.nbytes for each in arrays.values()))
    for lo in range(0, rows, step):
        block = checked({name: each[lo : lo + step] for name, each in arrays.items()}, where, dtype, lo)
        require_weights(block, where)
        yield block


def _is_mapped(array: Array) -> bool:
    base: Any = array
    while base is not None:
        if isinstance(base, np.memmap):
            return True
        base = getattr(base, "base", None)
    return False


def _named(values: Any, role: str) -> dict[str, Any]:
    """Lists are arrays here: of a structure, only tuples and mappings are."""
    return {role: values} if isinstance(values, list) else named(values, role)


def _one_or_all(tensors: Sequence[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
