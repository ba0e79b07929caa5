"""A data set of 4 GB, packed and trained on once by workers of 512 MB: rows per second, memory of client and workers.

    python -m benchmarks.large_set [MEGABYTES] [--workers 4] [--memory-mb 512]

Pictures of 3 x 224 x 224 bytes in a pair of .npy files, by default 4,096 MB of them, are packed as `gradmux data put`
does, and one epoch of a small convolution is trained on them by workers of the emulator, which ends one that takes more
memory than it has. The client's memory is its own (what it has mapped of files does not count) beyond what the same job
takes with a few rows. Bound: 1.3 shards of 32 MiB. The workers' is the largest of any of them.
"""

from __future__ import annotations

import argparse
import gc
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil
from torch import nn

from benchmarks.client_memory import Peak
from gradmux.infra.local.backend import emulator_errors, local_place, start_emulator
from gradmux.lambda_worker.layout import SHARD_BYTES
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.runs.keep import keep_job
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.runs.train import run_job
from gradmux.orchestrator.store import open_bucket
from gradmux.orchestrator.training.data import load_dataset
from gradmux.orchestrator.training.packing import Folder

MB = 2**20
SHAPE, CLASSES, BATCH, FEW = (3, 224, 224), 10, 256, 64
BOUND_SHARDS = 1.3
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Measured:
    """What one set took."""

    rows: int
    put_s: float
    train_s: float
    put_bytes: int
    """of the client while it packed; most at any time"""
    train_bytes: int
    """of the client while it prepared and trained"""
    worker_bytes: int
    """of the largest worker"""


class Workers:
    """The largest resident memory of any process below this one."""

    def __init__(self) -> None:
        self.bytes, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Workers:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            with suppress(psutil.NoSuchProcess):
                below = [each for child in psutil.Process().children() for each in child.children(recursive=True)]
                self.bytes = max([self.bytes, *(each.memory_info().rss for each in below)])


def small_net() -> nn.Module:
    """Patches of 16 x 16, and their mean."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 16, stride=16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES)
    )


def write_pictures(folder: Path, rows: int) -> None:
    """x.npy and y.npy, some pictures at a time."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    np.save(folder / "y.npy", np.arange(rows) % CLASSES)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (rows, *SHAPE))
    for lo in range(0, rows, BATCH):
        part = x[lo : lo + BATCH]
        part[...] = generator.integers(0, 256, part.shape, dtype=np.uint8)
    x.flush()


def job(data: Path, rows: int, workers: int, memory_mb: int) -> JobConfig:
    """One epoch, by rows scaled on the workers."""
    batch = min(BATCH, rows)
    tree = {
        "name": "large-set",
        "cluster": {"workers": workers, "memory_mb": memory_mb, "timeout_s": 300},
        "scheme": {"name": "gc", "s": 1},
        "data": {"train": str(data), "batch_size": batch, "scale": 255.0, "mean": [0.5], "std": [0.25]},
        "training": {"steps": rows // batch, "checkpoint_every": 0},
        "models": [{"name": "net", "factory": "benchmarks.large_set:small_net"}],
    }
    return parse_job(tree, "large_set")


def measured(folder: Path, rows: int, workers: int, memory_mb: int) -> Measured:
    """Packs and trains on so many rows."""
    write_pictures(folder, rows)
    put_s, put_bytes = timed(lambda: load_dataset(str(folder / "x.npy")).packed.put(Folder(folder / "set")))
    config = job(folder / "set", rows, workers, memory_mb)

    def train() -> None:
        prepared = prepare_job(config, Materials(), Path.cwd(), open_bucket)
        with emulator_errors(), start_emulator(config) as emulator:
            run_job(prepared, local_place(emulator), keep_job(prepared, folder / "home", Path.cwd()))

    with Workers() as largest:
        train_s, train_bytes = timed(train)
    return Measured(rows, put_s, train_s, put_bytes, train_bytes, largest.bytes)


def timed(act: Callable[[], object]) -> tuple[float, int]:
    """(seconds, bytes at most)"""
    gc.collect()
    began_s = time.perf_counter()
    with Peak() as peak:
        act()
    return time.perf_counter() - began_s, peak.bytes


def main() -> int:
    """1 when the client holds more than its bound."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_set", description=__doc__)
    parser.add_argument("megabytes", type=int, nargs="?", default=4096)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--memory-mb", type=int, default=512)
    asked = parser.parse_args()
    rows = max(FEW, asked.megabytes * MB // int(np.prod(SHAPE)))
    with TemporaryDirectory() as folder:
        measured(Path(folder) / "warm", FEW, asked.workers, asked.memory_mb)
        few = measured(Path(folder) / "few", FEW, asked.workers, asked.memory_mb)
        found = measured(Path(folder) / "all", rows, asked.workers, asked.memory_mb)
    put_shards = (found.put_bytes - few.put_bytes) / SHARD_BYTES
    train_shards = (found.train_bytes - few.train_bytes) / SHARD_BYTES
    print(f"{rows:,} rows of {'x'.join(map(str, SHAPE))} uint8, {asked.megabytes:,} MB, {asked.workers} workers")
    print(f"data put: {rows / found.put_s:,.0f} rows/s, client {put_shards:.2f} shards")
    print(
        f"one epoch: {rows / found.train_s:,.0f} rows/s in {found.train_s:.0f} s, client {train_shards:.2f} shards, "
        f"largest worker {found.worker_bytes / MB:.0f} of {asked.memory_mb} MB"
    )
    return int(max(put_shards, train_shards) > BOUND_SHARDS)


if __name__ == "__main__":
    sys.exit(main())
