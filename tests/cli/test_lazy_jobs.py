"""Lazy schemes over real workers: the decisions and weights of plain LAG, and no bytes for what was not sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradmux.infra.lambda_place import LambdaPlace
from gradmux.orchestrator.backends import open_place
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.record import Header, RoundLine, read_record
from gradmux.orchestrator.runs.keep import keep_job
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.runs.train import run_job
from gradmux.orchestrator.store import MemoryStore
from gradmux.orchestrator.training.models import ModelPlan, seeded
from tests.cli.relay import relayed

ROWS, FEATURES, WORKERS, STEPS, HISTORY = 48, 6, 6, 24, 5
BALLAST = 5000
"""parameters that no loss depends on: they make a gradient large on the wire"""
GRADIENT_BYTES = (BALLAST + FEATURES + 1) * 8 * 4 / 3
"""of a gradient in a reply: float64 in base64"""
RATES = (0.2, 0.05)


class Weighted(nn.Module):
    """A linear regression with a ballast."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(FEATURES, 1)
        self.ballast = nn.Parameter(torch.zeros(BALLAST))

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x)  # type: ignore[no-any-return]


def make_weighted() -> nn.Module:
    return Weighted()


def rows() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Blocks of eight rows, each steeper than the one before: shards that need not be sent equally often."""
    random = np.random.default_rng(4)
    x = random.normal(size=(ROWS, FEATURES)) * np.repeat(np.geomspace(0.05, 1.0, WORKERS), ROWS // WORKERS)[:, None]
    return x, x @ random.normal(size=(FEATURES, 1)) + 0.1 * random.normal(size=(ROWS, 1))


def prepared(scheme: dict[str, Any], **changes: Any) -> Prepared:
    tree = {
        "name": "lazy",
        "cluster": {"workers": WORKERS},
        "scheme": {"D": HISTORY, **scheme},
        "data": {"train": "arrays", "batch_size": ROWS},
        "training": {"steps": STEPS, "loss": "mse_loss", "dtype": "float64"},
        "models": [{"name": "line", "factory": "here:make", "optimizer": {"name": "SGD", "lr": 0.1}}],
        "sweep": {"optimizer.lr": list(RATES)},
    }
    tree = {**tree, **changes}
    names = [model.name for model in parse_job(tree, "test").expanded_models()]
    materials = Materials(factories=dict.fromkeys(names, make_weighted), train=rows())
    return prepare_job(parse_job(tree, "test"), materials, Path.cwd(), lambda _: MemoryStore())


@dataclass
class PlainLag:
    """LAG in one process, on mean losses, as Chen et al. write it. `bound` is L_m; None: as seen so far."""

    module: nn.Module
    rate: float
    shards: int
    by_worker: bool
    bound: float | None = None
    asked: list[set[int]] = field(default_factory=list)
    """by step: the shards that were sent"""

    def __post_init__(self) -> None:
        x, y = (torch.from_numpy(array) for array in rows())
        self.parts = list(zip(x.chunk(self.shards), y.chunk(self.shards), strict=True))
        self.sent: dict[int, tuple[Tensor, Tensor]] = {}
        self.seen: dict[int, float] = {}
        self.past = [self.weights()]

    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.module.parameters()]).clone()

    def gradient(self, shard: int) -> Tensor:
        x, y = self.parts[shard]
        loss = (self.module(x) - y).square().sum() / ROWS
        found = torch.autograd.grad(loss, list(self.module.parameters()), allow_unused=True, materialize_grads=True)
        return torch.cat([g.flatten() for g in found])

    def step(self) -> None:
        moved = zip(self.past[:0:-1][:HISTORY], self.past[-2::-1], strict=False)
        xi = (1.0 if self.by_worker else 10.0) / HISTORY
        limit = xi * sum(float((a - b).square().sum()) for a, b in moved) / (self.rate * self.shards) ** 2
        fresh = {q: self.gradient(q) for q in range(self.shards)}
        chosen = {q for q in fresh if self.is_sent(q, fresh[q], limit)}
        for q in chosen:
            self.learn(q, fresh[q])
            self.sent[q] = (self.past[-1], fresh[q])
        self.asked.append(chosen)
        after = self.past[-1] - self.rate * torch.stack([g for _, g in self.sent.values()]).sum(0)
        nn.utils.vector_to_parameters(after, self.module.parameters())
        self.past.append(self.weights())

    def is_sent(self, q: int, gradient: Tensor, limit: float) -> bool:
        if q not in self.sent:
            return True
        at, old = self.sent[q]
        if self.by_worker:
            return float((gradient - old).square().sum()) > limit
        bound = self.bound or self.seen.get(q)
        return bound is None or bound**2 * float((self.past[-1] - at).square().sum()) > limit

    def learn(self, q: int, gradient: Tensor) -> None:
        if q in self.sent:
            at, old = self.sent[q]
            ratio = float((gradient - old).norm() / (self.past[-1] - at).norm())
            self.seen[q] = max(self.seen.get(q, 0.0), ratio)


@pytest.fixture(scope="module")
def place() -> Iterator[LambdaPlace]:
    with open_place(prepared({"name": "lag-wk"}).config) as place:
        yield place


CASES: list[tuple[dict[str, Any], int, int, bool, float | None]] = [
    # scheme, shards, results that make up one sending, does the worker decide, L_m of a shard's part of the mean loss
    ({"name": "lag-wk"}, 6, 1, True, None),
    ({"name": "lag-ps"}, 6, 1, False, None),
    ({"name": "lag-ps", "L": 6.0}, 6, 1, False, 1.0),
    ({"name": "g-lag", "s": 1}, 3, 1, False, None),
    ({"name": "lagc", "groups": 2, "s": 1, "L": 3.0}, 2, 2, False, 1.5),
    ({"name": "lagc", "groups": 2, "s": 1}, 2, 2, False, None),
]


@pytest.mark.parametrize(("scheme", "shards", "results", "by_worker", "bound"), CASES, ids=str)
def test_real_workers_do_what_plain_lag_does(
    place: LambdaPlace,
    tmp_path: Path,
    scheme: dict[str, Any],
    shards: int,
    results: int,
    by_worker: bool,
    bound: float | None,
) -> None:
    job = prepared(scheme)
    with relayed(place.lambda_url or "") as relay:
        trained = run_job(job, replace(place, lambda_url=relay.url), keep_job(job, tmp_path, tmp_path))
        returned = relay.returned
    record = list(read_record(trained.run.record))
    lines = [line for line in record if isinstance(line, RoundLine)]
    arrivals = [h for line in record if not isinstance(line, Header) for h in line.arrivals]
    sent_shards = 0
    for index, plan in enumerate(job.models):
        plain = PlainLag(start(plan), RATES[index], shards, by_worker, bound)
        for _ in range(STEPS):
            plain.step()
        mine = [line for line in lines if line.round % len(RATES) == index]
        assert [uploaded(line, WORKERS // shards) for line in mine] == plain.asked
        ours = torch.cat([p.detach().flatten() for p in trained[plan.name].parameters()])
        assert float((ours - plain.past[-1]).norm() / plain.past[-1].norm()) < 1e-12
        sent_shards += sum(map(len, plain.asked))
    full = STEPS * len(RATES) * shards
    assert sent_shards < 0.8 * full, "laziness saves something here"
    answers = sum(len(h.slots) - len(h.skipped) for h in arrivals)
    assert answers >= results * sent_shards
    small = 2000 * trained.run.invocations
    assert answers * GRADIENT_BYTES < returned < answers * GRADIENT_BYTES * 1.02 + small
    if by_worker:
        assert trained.run.invocations == full
        assert sum(len(h.skipped) for h in arrivals) == full - sent_shards
    else:
        assert trained.run.invocations == sent_shards * (WORKERS // shards), "only the shards that drifted are asked"


def start(plan: ModelPlan) -> nn.Module:
    """The module as the trainer's model begins."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seeded(plan).seed)
        return make_weighted().double()


def uploaded(line: RoundLine, members: int) -> set[int]:
    """The shards that were sent in a round."""
    asked = {worker for sent in line.sent for worker in sent.workers}
    return {worker // members for worker in asked} - {h.worker // members for h in line.arrivals if h.skipped}


@pytest.mark.parametrize(
    ("scheme", "changes", "says"),
    [
        (
            {"alpha": 0.5},
            {},
            "lag-wk: alpha = 0.5 is not the learning rate of model 'line-lr=0.2', 0.2: leave alpha out",
        ),
        (
            {},
            {"data": {"train": "arrays", "batch_size": 16}},
            "lag-wk needs the whole data in every step, but batch_size = 16: set data.batch_size = 48",
        ),
        (
            {},
            {"sweep": {"optimizer.momentum": [0.0, 0.9]}},
            "lag-wk needs plain SGD, but model 'line-momentum=0.9' has momentum = 0.9: use another scheme",
        ),
        (
            {},
            {"sweep": {"optimizer.name": ["Adam"]}},
            "lag-wk needs plain SGD, but model 'line-name=Adam' has optimizer Adam: use another scheme",
        ),
        (
            {},
            {"training": {"steps": 1, "loss": "mse_loss", "clip_norm": 1.0}},
            "lag-wk needs plain SGD, but clip_norm = 1: leave it out",
        ),
        (
            {"name": "lag-ps"},
            {"sweep": {"optimizer.lr": [0.0]}},
            "lag-ps: alpha (step size) is 0, but must be positive",
        ),
    ],
    ids=["alpha", "mini-batches", "momentum", "adam", "clipping", "rate-0"],
)
def test_jobs_that_are_not_plain_descent_are_refused(
    scheme: dict[str, Any], changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as error:
        prepared({"name": "lag-wk", **scheme}, **changes)
    assert str(error.value).startswith(says)
