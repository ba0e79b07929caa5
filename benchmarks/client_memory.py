"""How many models a client holds for one large model: to try, publish, step and checkpoint it, in copies of its size.

    python -m benchmarks.client_memory [MILLIONS OF PARAMETERS ...]

Each size is measured in a process of its own: the largest resident memory during each phase, less that before the model
was made, divided by the model's size. The trial is all that is done before any worker is invoked (`prepare_job`). The
gradient comes as a sum from the cloud does; the optimizer is SGD, which keeps nothing. What torch loads at its first
step is loaded before, by a small model. Bound: 2.2, else exit status 1.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

MB = 2**20
BOUND = 2.2
SIDE = 2000
"""of the square layers that the model is made of"""
ROWS = 64
USUAL = ("25", "124")
"""millions of parameters"""


class Peak:
    """The largest resident memory between two looks, sampled every millisecond."""

    def __init__(self) -> None:
        self._most, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def bytes(self) -> int:
        return self._most

    def _watch(self) -> None:
        while not self._over.is_set():
            self._most = max(self._most, resident())
            time.sleep(0.001)


def resident() -> int:
    """Bytes of this process's own memory; pages of files count only while they are written to."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def make(layers: int, side: int = SIDE):  # type: ignore[no-untyped-def]
    """A stack of square layers."""
    from torch import nn

    return nn.Sequential(*(nn.Linear(side, side, bias=False) for _ in range(layers)))


def job(layers: int, side: int):  # type: ignore[no-untyped-def]
    """One model on a few rows."""
    from gradmux.orchestrator.job_file import parse_job

    tree = {
        "scheme": {"name": "uncoded"},
        "cluster": {"workers": 4, "memory_mb": 10_240},
        "data": {"train": "given", "batch_size": ROWS},
        "training": {"steps": 2, "loss": "mse_loss"},
        "models": [
            {
                "name": "large",
                "factory": "benchmarks.client_memory:make",
                "args": {"layers": layers, "side": side},
                "optimizer": {"name": "SGD", "lr": 0.1},
            }
        ],
    }
    return parse_job(tree, "client_memory")


def prepare(layers: int, side: int) -> None:
    """All that is done before any worker is invoked."""
    import numpy as np

    from gradmux.orchestrator.materials import Materials
    from gradmux.orchestrator.runs.prepare import prepare_job
    from gradmux.orchestrator.store import open_bucket

    x = np.random.default_rng(0).standard_normal((ROWS, side), dtype=np.float32)
    prepare_job(job(layers, side), Materials(train=(x, x)), Path.cwd(), open_bucket)


def measure(millions: float) -> int:
    """Prints one line; 1 when a phase held more than its bound."""
    import numpy as np

    from gradmux.lambda_worker.buffers import FIXED_SUMS
    from gradmux.orchestrator.folder_store import FolderStore
    from gradmux.orchestrator.jobs import JobPlan
    from gradmux.orchestrator.runs.checkpoints import Checkpoints, Manifest
    from gradmux.orchestrator.store import Keys
    from gradmux.orchestrator.training.gradients import CodedResult
    from gradmux.orchestrator.training.models import ModelPlan
    from gradmux.orchestrator.training.trainer import TorchTrainer

    layers = max(1, round(millions * 1e6 / SIDE**2))
    size = layers * SIDE**2 * 4
    plan = ModelPlan("large", make, {"layers": layers}, optimizer_args={"lr": 0.1}, loss="mse_loss")
    with tempfile.TemporaryDirectory() as folder:
        store = FolderStore(Path(folder) / "store")
        warm_up(Path(folder))
        before = resident()
        told = [phase("trial", lambda: prepare(layers, SIDE), before, size)]
        began_s = time.perf_counter()
        trainer = TorchTrainer([plan], JobPlan(1, 9), store=store, keys=Keys("run"))
        head = f"{layers * SIDE**2 / 1e6:.0f} M parameters, {size / MB:.0f} MiB"
        told.append(f"start {time.perf_counter() - began_s:.2f} s")
        checkpoints = Checkpoints(Path(folder) / "checkpoints")
        for step in (0, 1):
            told.append(phase("publish", lambda step=step: trainer.publish(step), before, size))
            sums = np.ones(FIXED_SUMS)
            result = CodedResult(np.full(size // 4, 1e-6, np.float32), sums, spare=True)
            terms = [(result, 1.0)]
            del result
            told.append(phase("step", lambda step=step, terms=terms: trainer.step(step, terms), before, size))
            terms.clear()
        manifest = Manifest("run", 0, ("large",), (2,))
        told.append(phase("checkpoint", lambda: checkpoints.write(manifest, [trainer.state(0)]), before, size))
    print("; ".join([f"{head}: {told[0]}", *told[1:]]), flush=True)
    return int(max(held) > BOUND)


def warm_up(folder: Path) -> None:
    """All of it once with a small model."""
    from gradmux.orchestrator.folder_store import FolderStore
    from gradmux.orchestrator.jobs import JobPlan
    from gradmux.orchestrator.store import Keys
    from gradmux.orchestrator.training.models import ModelPlan
    from gradmux.orchestrator.training.trainer import TorchTrainer

    plan = ModelPlan("small", small, optimizer_args={"lr": 0.1}, loss="mse_loss")
    trainer = TorchTrainer([plan], JobPlan(1, 2), store=FolderStore(folder / "warm"), keys=Keys("run"))
    trainer.publish(0)
    trainer.rehearse(1)
    prepare(2, 20)


def small():  # type: ignore[no-untyped-def]
    """One layer."""
    from torch import nn

    return nn.Linear(10, 10)


held: list[float] = []
"""by each phase of this process, in models"""


def phase(name: str, act, before: int, size: int) -> str:  # type: ignore[no-untyped-def]
    """What it took."""
    gc.collect()
    began_s = time.perf_counter()
    with Peak() as peak:
        act()
    held.append((peak.bytes - before) / size)
    return f"{name} {held[-1]:.2f} models, {time.perf_counter() - began_s:.2f} s"


def main() -> int:
    """1 when a phase held more than its bound."""
    if len(sys.argv) > 2 and sys.argv[1] == "--one":
        return measure(float(sys.argv[2]))
    command = [sys.executable, "-m", "benchmarks.client_memory", "--one"]
    return max(subprocess.run([*command, millions], check=False).returncode for millions in sys.argv[1:] or USUAL)


if __name__ == "__main__":
    sys.exit(main())
