"""Long runs stay small and fast: memory, descriptors and threads over 5,000 rounds, time per round at both ends.

    python -m benchmarks.endurance [--rounds 5000] [--invocations 5000]

The first part plays rounds in virtual time, with the real loop, record and checkpoints on disk; the second one invokes
real workers of the emulator through the real fleet and store. Ratios compare the last tenth of a run with its second.
Bounds: no more descriptors at the end than after the first tenth, but for a few that come and go, and 5 MB more memory;
the exit status says whether they held. Time is only told: this machine's other work is in it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

MOST_DESCRIPTORS = 2
MOST_MB = 5.0
"""more than after the first tenth"""


@dataclass
class Gauge:
    """What this process holds, looked at now and then."""

    every: int
    """calls of `look` between two looks"""
    resident_mb: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    _calls: int = 0
    _process: psutil.Process = field(default_factory=lambda: psutil.Process(os.getpid()))

    def look(self) -> None:
        self._calls += 1
        if self._calls % self.every:
            return
        self.resident_mb.append(self._process.memory_info().rss / 2**20)
        self.descriptors.append(self._process.num_fds())
        self.threads.append(threading.active_count())
        self.times_s.append(time.perf_counter())

    @property
    def growth_mb(self) -> float:
        """Resident memory at the end over that after the first tenth."""
        tenth = max(1, len(self.resident_mb) // 10)
        return median(self.resident_mb[-tenth:]) - median(self.resident_mb[tenth : 2 * tenth])

    @property
    def more_descriptors(self) -> int:
        """The most at the end over the most after the first tenth."""
        tenth = max(1, len(self.descriptors) // 10)
        return max(self.descriptors[-tenth:]) - max(self.descriptors[tenth : 2 * tenth])

    @property
    def flat(self) -> bool:
        """Is no more held at the end than near the beginning?"""
        return self.more_descriptors <= MOST_DESCRIPTORS and self.growth_mb <= MOST_MB

    @property
    def time_ratio(self) -> float:
        """Time per look at the end over that after the first tenth."""
        steps = [b - a for a, b in zip(self.times_s, self.times_s[1:], strict=False)]
        tenth = max(1, len(steps) // 10)
        return median(steps[-tenth:]) / median(steps[tenth : 2 * tenth])

    def describe(self) -> str:
        return (
            f"{len(self.times_s)} looks, {self.every} events apart: memory {self.growth_mb:+.1f} MB at "
            f"{self.resident_mb[-1]:.0f}, descriptors {min(self.descriptors)} to {max(self.descriptors)}, threads "
            f"{min(self.threads)} to {max(self.threads)}, time per event x {self.time_ratio:.2f}"
        )


def virtual(folder: Path, rounds: int) -> tuple[Gauge, int]:
    """(what this process held, bytes of the record) of a run in virtual time."""
    from tests.orchestrator.runs.bench import SmallJob

    job = SmallJob(models=2, steps=rounds // 2, every=100, workers=4)
    paths, gauge = job.submit(folder), Gauge(every=max(1, rounds // 25))
    job.live(paths, between=gauge.look)
    return gauge, paths.record.stat().st_size


def emulated(folder: Path, invocations: int) -> Gauge:
    """What this process held during a run over real workers."""
    from gradmux.orchestrator.backends import open_place
    from gradmux.orchestrator.job_file import parse_job
    from gradmux.orchestrator.materials import Materials
    from gradmux.orchestrator.record import Decoded
    from gradmux.orchestrator.runs.keep import keep_job
    from gradmux.orchestrator.runs.prepare import prepare_job
    from gradmux.orchestrator.runs.train import run_job
    from gradmux.orchestrator.store import MemoryStore

    workers = 8
    tree = {
        "cluster": {"workers": workers},
        "scheme": {"name": "gc", "s": 1},
        "data": {"train": "digits:train", "batch_size": 64},
        "training": {"steps": invocations // workers // 2, "checkpoint_every": 10},
        "models": [
            {"name": "small", "factory": "gradmux.orchestrator.demo.models:mlp", "args": {"hidden": 8}},
            {"name": "large", "factory": "gradmux.orchestrator.demo.models:mlp", "args": {"hidden": 192}},
        ],
    }
    prepared = prepare_job(parse_job(tree, "endurance"), Materials(), folder, lambda _: MemoryStore())
    gauge = Gauge(every=5)

    def on_step(_: Decoded) -> None:
        gauge.look()

    with open_place(prepared.config) as place:
        run_job(prepared, place, keep_job(prepared, folder, folder), on_step)
    return gauge


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--invocations", type=int, default=5000)
    arguments = parser.parse_args()
    parts: list[tuple[str, Callable[[Path], tuple[Gauge, str]]]] = [
        (f"{arguments.rounds} rounds in virtual time", lambda folder: _virtual(folder, arguments.rounds)),
        (f"{arguments.invocations} invocations", lambda folder: (emulated(folder, arguments.invocations), "")),
    ]
    missed = False
    for name, part in parts:
        with tempfile.TemporaryDirectory(prefix="gradmux-endurance-") as folder:
            began_s = time.perf_counter()
            gauge, more = part(Path(folder))
            print(f"{name} ({time.perf_counter() - began_s:.1f} s): {gauge.describe()}{more}", flush=True)
        if not gauge.flat:
            print(f"MISSED: {gauge.more_descriptors:+d} descriptors, {gauge.growth_mb:+.1f} MB", flush=True)
            missed = True
    return missed


def _virtual(folder: Path, rounds: int) -> tuple[Gauge, str]:
    gauge, record_bytes = virtual(folder, rounds)
    return gauge, f"; the record has {record_bytes / 1e6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
