"""How many models a client holds for one large model: to publish, to step and to checkpoint it, in copies of its size.

    python -m benchmarks.client_memory [MILLIONS OF PARAMETERS ...]

Each size is measured in a process of its own: the largest resident memory during each phase, less that before the model
was made, divided by the model's size. The gradient comes as a sum from the cloud does; the optimizer is SGD, which
keeps nothing. What torch loads at its first step is loaded before. Expected: at most 2.2.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

MB = 2**20
SIDE = 2000
"""of the square layers that the model is made of"""


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


def make(layers: int):  # type: ignore[no-untyped-def]
    """A stack of square layers."""
    from torch import nn

    return nn.Sequential(*(nn.Linear(SIDE, SIDE, bias=False) for _ in range(layers)))


def measure(millions: float) -> None:
    """Prints one line."""
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
        began_s = time.perf_counter()
        trainer = TorchTrainer([plan], JobPlan(1, 9), store=store, keys=Keys("run"))
        head = f"{layers * SIDE**2 / 1e6:.0f} M parameters, {size / MB:.0f} MiB"
        told = [f"{head}: start {time.perf_counter() - began_s:.2f} s"]
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
    print("; ".join(told), flush=True)


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


def small():  # type: ignore[no-untyped-def]
    """One layer."""
    from torch import nn

    return nn.Linear(10, 10)


def phase(name: str, act, before: int, size: int) -> str:  # type: ignore[no-untyped-def]
    """What it took."""
    began_s = time.perf_counter()
    with Peak() as peak:
        act()
    return f"{name} {(peak.bytes - before) / size:.2f} models, {time.perf_counter() - began_s:.2f} s"


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "--one":
        measure(float(sys.argv[2]))
        return
    for millions in sys.argv[1:] or ("25", "124"):
        subprocess.run([sys.executable, "-m", "benchmarks.client_memory", "--one", millions], check=True)


if __name__ == "__main__":
    main()
