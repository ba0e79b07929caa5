"""However results travel and wherever they are summed, a job trains the same models, to the last bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from gradmux import Job, Model, train
from gradmux.infra.local import DelayPlan, Emulator
from gradmux.lambda_worker.contract import MAX_EVENT_BYTES, MAX_REQUEST_BYTES, base64_size
from gradmux.orchestrator.delays import generate
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.runs.assemble import Assembly
from gradmux.orchestrator.runs.keep import keep_job
from gradmux.orchestrator.runs.life import living
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import MemoryStore
from tests.cli.conftest import ON_AWS

SCHEMES: dict[str, dict[str, Any]] = {
    "m-sgc": {"burst": 1, "window": 2, "max_stragglers": 1},
    "gc-partial": {"stragglers": 1, "parameters": {"m": 1}},
}


def make_mlp(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, 2))


def weights(scheme: str, home: Path, account: Emulator, **cluster: Any) -> list[bytes]:
    """What a job trains, run with these settings; the emulator's delays make stragglers."""
    delays_s = generate("shifted-exponential", rounds=10, workers=4, seed=0).delays_s
    account.set_delays(DelayPlan.of(delays_s.tolist(), time_scale=0.02))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5)).astype(np.float32)
    models = [Model(name, make_mlp, args={"hidden": 7}, optimizer=("Adam", {"lr": 0.01})) for name in ("a", "b")]
    job = Job(
        models=models, data=(x, (x[:, 0] > 0).astype(np.int64)), batch_size=30, steps=3, workers=4, scheme=scheme,
        cluster={**ON_AWS, **cluster}, **SCHEMES[scheme],
    )  # fmt: skip
    return [model.checkpoint.read_bytes() for model in train(job, backend="aws", home=home).run.models]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_weights_are_the_same(scheme: str, account: Emulator, tmp_path: Path) -> None:
    """As summed by the client and answered at once."""
    expected = weights(scheme, tmp_path / "plain", account, aggregate="client")
    cloud, event = {"aggregate": "cloud"}, {"invoke": "event"}
    for way, cluster in {"cloud": cloud, "event": event, "both": {**cloud, **event}}.items():
        assert weights(scheme, tmp_path / way, account, **cluster) == expected, way


@pytest.mark.parametrize(("invoke", "hidden", "inline"), [
    ("request", 7, True), ("event", 7, True), ("request", 1500, True), ("event", 1500, False),
])  # fmt: skip
def test_twenty_slots_fit_into_a_request_whatever_their_weights(
    invoke: str, hidden: int, inline: bool, tmp_path: Path
) -> None:
    """An event may have a sixth of the size of a request that is answered at once."""
    tree = {
        "cluster": {"workers": 2, "invoke": invoke},
        "scheme": {"name": "uncoded"},
        "data": {"train": "arrays", "batch_size": 4},
        "training": {"steps": 1},
        "models": [{"name": "a", "factory": "here:make_mlp", "optimizer": {"name": "SGD", "lr": 0.01}}],
    }
    rows = np.ones((8, 5), np.float32), np.zeros(8, np.int64)
    materials = Materials(factories={"a": partial(make_mlp, hidden)}, train=rows)
    prepared = prepare_job(parse_job(tree, "test"), materials, tmp_path, lambda _: MemoryStore())
    paths = keep_job(prepared, tmp_path / "home", tmp_path)
    store: Any = MemoryStore()
    place: Any = None
    with living(paths) as life:
        trainer = Assembly(prepared, place, paths, life, store).trainer(None)
    trainer.publish(0)
    weights = trainer.weights(0)
    assert (weights.key is None) is inline
    limit = MAX_EVENT_BYTES if invoke == "event" else MAX_REQUEST_BYTES
    assert 20 * base64_size(len(weights.raw("weights") or b"")) < limit / 2, "there must be room for the rows, too"


def test_lazy_schemes_need_their_results_here(tmp_path: Path) -> None:
    rows = (np.ones((8, 5), np.float32), np.ones((8, 2), np.float32))
    models = [Model("a", make_mlp, args={"hidden": 7}, optimizer=("SGD", {"lr": 0.01}))]
    job = Job(
        models=models, data=rows, batch_size=8, steps=1, workers=4, loss="mse_loss", scheme="lag-ps",
        cluster={"aggregate": "cloud"},
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"lag-ps keeps gradients to compare them"):
        train(job, home=tmp_path)
