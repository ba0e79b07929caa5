"""Rows per second and memory of the client: packed shards against a plain torch DataLoader over the same arrays.

    python -m benchmarks.data [MEGABYTES]

In processes of their own, over one set of uint8 pictures with classes: (a) packing an .npz file, (b) reading all rows
in shuffled batches through a worker's data set, whole shards on disk and by ranges, (c) the same by a DataLoader
over arrays in memory. Memory is the most that is resident, beyond what the imports take: mapped files count as well.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

MB = 2**20
SHAPE = (3, 32, 32)
BATCH = 256


def peak() -> int:
    """Bytes this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def report(name: str, rows: int, began_s: float, before: int) -> None:
    """One line."""
    taken_s = time.perf_counter() - began_s
    print(f"{name:<28} {rows / taken_s:>12,.0f} rows/s {(peak() - before) / MB:>8,.0f} MiB", flush=True)


def pack(folder: Path) -> None:
    """From .npz to shards."""
    from gradmux.orchestrator.training.data import load_dataset
    from gradmux.orchestrator.training.packing import Folder

    load_dataset("digits:test").packed  # noqa: B018  imports all
    before, began_s = peak(), time.perf_counter()
    dataset = load_dataset(str(folder / "set.npz"))
    dataset.packed.put(Folder(folder / "set"))
    report("data put", dataset.rows, began_s, before)


def workers_read(folder: Path, whole: bool) -> None:
    """As workers do: from a store that is this folder."""
    from gradmux.lambda_worker.cache import DiskCache
    from gradmux.lambda_worker.contract import Rows
    from gradmux.lambda_worker.data import Dataset
    from gradmux.orchestrator.training.order import BatchOrder
    from gradmux.orchestrator.training.packing import open_folder

    source = open_folder(folder / "set")
    cache = DiskCache(folder / f"cache-{whole}", 1 << 40)
    data = Dataset(source.manifest, source, cache, whole_bytes=(1 << 40) if whole else 0)  # type: ignore[arg-type]
    order = BatchOrder(source.rows, BATCH)
    data.read(Rows(0, 1))
    before, began_s = peak(), time.perf_counter()
    steps = order.batches_per_epoch if whole else min(40, order.batches_per_epoch)
    for step in range(steps):
        data.read(Rows.ascending(np.sort(order.batch(step))))
    report("worker, shards on disk" if whole else "worker, by ranges", steps * BATCH, began_s, before)


def plain(folder: Path) -> None:
    """A DataLoader over arrays in memory."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    before, began_s = peak(), time.perf_counter()
    with np.load(folder / "set.npz") as archive:
        tensors = [torch.from_numpy(archive[name]) for name in ("x", "y")]
    rows = 0
    for x, _ in DataLoader(TensorDataset(*tensors), BATCH, shuffle=True, drop_last=True):
        rows += len(x)
    report("DataLoader, in memory", rows, began_s, before)


PARTS: dict[str, Callable[[Path], None]] = {
    "pack": pack,
    "whole": lambda folder: workers_read(folder, whole=True),
    "ranges": lambda folder: workers_read(folder, whole=False),
    "plain": plain,
}


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] in PARTS:
        PARTS[sys.argv[1]](Path(sys.argv[2]))
        return
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    rows = size * MB // int(np.prod(SHAPE))
    with tempfile.TemporaryDirectory() as folder:
        generator = np.random.default_rng(0)
        x = generator.integers(0, 256, (rows, *SHAPE), dtype=np.uint8)
        np.savez(Path(folder) / "set.npz", x=x, y=np.arange(rows) % 10)
        del x
        print(f"{rows:,} rows of {'x'.join(map(str, SHAPE))} uint8, {size} MiB")
        for part in PARTS:
            subprocess.run([sys.executable, "-m", "benchmarks.data", part, folder], check=True)


if __name__ == "__main__":
    main()
