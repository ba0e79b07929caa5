"""Small jobs on one emulator, to be stopped, hurt and resumed: by what users' commands call, without the commands."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradmux.infra.lambda_place import LambdaPlace
from gradmux.infra.local import Emulator, FaultKind, FaultPlan, FaultRate
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.record import Decoded
from gradmux.orchestrator.results import Trained
from gradmux.orchestrator.runs.keep import keep_job, prepare_again
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.runs.stopping import Stop
from gradmux.orchestrator.runs.train import run_job
from gradmux.orchestrator.store import MemoryStore
from tests.cli.relay import Relay
from tests.orchestrator.training.bench import make_dataset, mlp

WORKERS, STEPS = 6, 4


def wide() -> nn.Module:
    """Its snapshots are too large for a request: they go through S3."""
    return nn.Sequential(nn.Linear(6, 2200), nn.Tanh(), nn.Linear(2200, 3))


class Fussy(nn.Module):
    """Passes the trial, and fails in every worker."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
            raise ValueError(f"fussy about {tuple(x.shape[1:])}")
        return self.line(x)  # type: ignore[no-any-return]


FACTORIES: Mapping[str, Callable[..., nn.Module]] = {"mlp": mlp, "wide": wide, "fussy": Fussy}


def model(name: str, factory: str = "mlp", **changes: Any) -> dict[str, Any]:
    """One table of `models`."""
    return {"name": name, "factory": f"here:{factory}", "optimizer": {"name": "Adam", "lr": 0.05}, **changes}


MODELS = [
    model("normed", args={"norm": True, "dropout": 0.3}, scheduler={"name": "StepLR", "step_size": 2}),
    model("wide", "wide", optimizer={"name": "SGD", "lr": 0.2, "momentum": 0.9}),
]


@dataclass(frozen=True)
class Small:
    """A job on random rows, and where it runs."""

    home: Path
    place: LambdaPlace

    def prepared(self, scheme: Mapping[str, Any], models: list[dict[str, Any]] | None = None, **more: Any) -> Prepared:
        models = models or MODELS
        cluster = {"workers": WORKERS, "timeout_s": 5.0, "concurrency": 30, "attempts": 8, "patience_s": 20.0}
        tree = {
            "name": "small",
            "cluster": {**cluster, **more.get("cluster", {})},
            "scheme": dict(scheme),
            "data": {"train": "arrays", "batch_size": 30},
            "training": {"steps": STEPS, "checkpoint_every": 2, **more.get("training", {})},
            "models": models,
        }
        data = make_dataset()
        factories = {each["name"]: FACTORIES[each["factory"].partition(":")[2]] for each in models}
        materials = Materials(factories=factories, train=(data.x, data.y))
        return prepare_job(parse_job(tree, "test"), materials, Path.cwd(), lambda _: MemoryStore())

    def submit(self, job: Prepared) -> RunPaths:
        return keep_job(job, self.home, Path.cwd())

    def run(
        self,
        paths: RunPaths,
        stop_after: int | None = None,
        place: LambdaPlace | None = None,
        at_first_step: Callable[[], None] | None = None,
    ) -> Trained:
        """A life of a run, from its folder alone; asked to stop after so many gradients."""
        stop, count = Stop(), 0

        def on_step(_: Decoded) -> None:
            nonlocal count
            count += 1
            if count == 1 and at_first_step is not None:
                at_first_step()
            if count == stop_after:
                stop.ask("interrupted")

        return run_job(prepare_again(paths), place or self.place, paths, on_step, stop)


def saved(paths: RunPaths) -> dict[str, bytes]:
    """The trained weights of a run that is done, as bytes."""
    return {path.stem: path.read_bytes() for path in paths.weights("").parent.glob("*.safetensors")}


def flat(trained: Trained) -> Tensor:
    """All weights of all models."""
    return torch.cat([t.double().flatten() for name in trained for t in trained[name].state_dict().values()])


@contextmanager
def hurt(emulator: Emulator, **rates: float) -> Iterator[None]:
    """Faults while the context is open; a kind that begins with a digit is written _503."""
    plan = FaultPlan(tuple(FaultRate(FaultKind(kind.removeprefix("_")), rate) for kind, rate in rates.items()), seed=5)
    emulator.set_faults(plan)
    try:
        yield
    finally:
        emulator.set_faults(FaultPlan())


class Cable(Relay):
    """A relay at a port of its own choice, whose connections can be cut."""

    allow_reuse_address = True

    def __init__(self, target: str, port: int) -> None:
        self._port = port
        self._connections: list[socket.socket] = []
        super().__init__(target)

    def server_bind(self) -> None:
        self.server_address = ("127.0.0.1", self._port)
        super().server_bind()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        self._connections.append(request)
        return True

    def cut(self) -> None:
        """Nothing comes through any more, and nobody listens."""
        self.shutdown()
        self.server_close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Network:
    """A way to `target` that can be cut, so that connections are refused, and mended."""

    def __init__(self, target: str) -> None:
        self._target, self._port = target, 0
        self.mend()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def mend(self) -> None:
        self._cable = Cable(self._target, self._port)
        self._port = self._cable.server_address[1]
        threading.Thread(target=self._cable.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def cut(self) -> None:
        self._cable.cut()


__all__ = ["STEPS", "WORKERS", "Network", "Small", "flat", "hurt", "model", "saved"]
