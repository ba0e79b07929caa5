"""What every backend must do, whoever wrote it: `class TestMine(BackendContract)` with a fixture `case`.

One place is opened for the whole class; each test has a run of its own in its store. Read next: `test_backends.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from torch import nn

from gradmux.lambda_worker.contract import cancel_marker
from gradmux.orchestrator.backends import (
    Backend,
    Examination,
    FleetPlan,
    Place,
    PlaceNote,
    find_backend,
    require_limits,
)
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.findings import Level
from gradmux.orchestrator.fleets.calling import WorkerFleet
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.ports import Arrival, Invocation, Outcome
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.schemes.scheme import Task
from gradmux.orchestrator.store import Keys, MemoryStore
from gradmux.orchestrator.training.data import put_dataset
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials, Wire
from gradmux.orchestrator.training.trainer import TorchTrainer
from tests.commands import warm_emulator
from tests.commands.command_line import wait_until

LONG_S = 60.0
ROWS, WORKERS = 24, 3
_RUNS = count()


def line() -> nn.Module:
    return nn.Linear(4, 3)


@dataclass(frozen=True, slots=True)
class Case:
    """One backend, and what a job says to run there."""

    backend: str
    cluster: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Any] = field(default_factory=dict)
    outlives: bool = False
    """its store is there before the place is opened, and after"""

    def tree(self, **cluster: Any) -> dict[str, Any]:
        return {
            "cluster": {"backend": self.backend, "workers": WORKERS, "timeout_s": 20.0, **self.cluster, **cluster},
            "scheme": {"name": "uncoded"},
            "data": {"train": "arrays", "batch_size": ROWS},
            "training": {"steps": 1},
            "models": [{"name": "line", "factory": "here:line", "optimizer": {"name": "SGD", "lr": 0.1}}],
            **self.sections,
        }

    def prepared(self, folder: Path) -> Prepared:
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(ROWS, 4)).astype(np.float32), rng.integers(0, 3, ROWS)
        materials = Materials(factories={"line": line}, train=rows)
        return prepare_job(parse_job(self.tree(), "test"), materials, folder, lambda _: MemoryStore())


class Run:
    """One run's requests, in the store of a place."""

    def __init__(self, prepared: Prepared, place: Place) -> None:
        self.keys, single = Keys(f"contract-{next(_RUNS)}"), JobPlan(models=1, steps=1)
        self.store = place.store()
        self.trainer = TorchTrainer(prepared.models, single, store=self.store, keys=self.keys)
        materials = RunMaterials(
            keys=self.keys,
            bucket=place.bucket,
            data=put_dataset(self.store, prepared.train),
            specs=self.trainer.put_specs(),
            orders=[prepared.order],
            weights=self.trainer.weights,
            seeds=[0],
            wire=Wire(dtype="float32"),
        )
        self.trainer.publish(0)
        self.requests = RequestBuilder(materials, single, np.full(WORKERS, 1 / WORKERS))
        self.fleet: WorkerFleet = place.fleet(
            FleetPlan(requests=self.requests, store=self.store, run=self.keys.run, timeout_s=20.0, patience_s=5.0)
        )

    def close(self) -> None:
        self.fleet.close()
        self.store.delete(self.store.list(self.keys.prefix))
        self.store.close()

    def call(self, worker: int, round: int = 0, epoch: int = 0) -> Invocation:
        """A worker's own chunk."""
        return Invocation(round, worker, 1, (Task(0, (worker,), (1.0,)),), 1 / WORKERS, epoch)

    def answers(self, many: int) -> list[Arrival]:
        found = [self.fleet.next(self.fleet.now() + LONG_S) for _ in range(many)]
        assert None not in found
        return [each for each in found if each is not None]


class BackendContract:
    """The suite. A fixture `case` of class scope says which backend."""

    @pytest.fixture(scope="class")
    @classmethod
    def prepared(cls, case: Case, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
        return case.prepared(tmp_path_factory.mktemp("job"))

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, case: Case) -> Backend:
        return find_backend(case.backend)

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, backend: Backend, prepared: Prepared) -> Iterator[Place]:
        with backend.open(prepared.config) as place:
            yield place

    @pytest.fixture
    def run(self, prepared: Prepared, place: Place) -> Iterator[Run]:
        with closing(Run(prepared, place)) as run:
            yield run

    # --- what it says of itself ---

    def test_it_is_found_by_its_name(self, case: Case, backend: Backend) -> None:
        assert backend.name == case.backend
        parse_job({**case.tree(), **{name: {} for name in backend.sections}}, "test")
        with pytest.raises(ConfigError, match=f"did you mean {case.backend!r}"):
            find_backend(f"{case.backend}x")

    def test_an_unknown_key_of_its_section_is_told(self, case: Case, backend: Backend) -> None:
        for name in backend.sections:
            with pytest.raises(ConfigError, match=rf"test: {name}\.colour: is not a key of this section; it has "):
                parse_job({**case.tree(), name: {"colour": 1}}, "test")

    def test_what_it_cannot_take_is_refused_before_anything_runs(self, case: Case, backend: Backend) -> None:
        limits = backend.limits
        wrong: dict[str, Any] = {}
        if limits.memory_mb is not None:
            wrong["memory_mb"] = limits.memory_mb + 1
        if limits.timeout_s is not None:
            wrong["timeout_s"] = limits.timeout_s + 1
        if limits.concurrency is not None:
            wrong.update(workers=limits.concurrency + 1, concurrency=2 * limits.concurrency)
        if limits.event_bytes == 0:
            wrong["invoke"] = "event"
        for key in wrong.keys() - {"concurrency"}:
            asked = {key: wrong[key], **({"concurrency": wrong["concurrency"]} if key == "workers" else {})}
            with pytest.raises(ConfigError, match=rf"test: cluster\.{key}: .*{case.backend}"):
                parse_job(case.tree(**asked), "test")
        require_limits(parse_job(case.tree(), "test"), backend)

    def test_an_estimate_has_delays_to_rest_on(self, backend: Backend, prepared: Prepared) -> None:
        delays, pace = backend.delays(prepared.config), backend.pace(prepared.config)
        assert delays.name
        assert delays.delays_s.ndim == 2
        assert (delays.delays_s >= 0).all()
        assert pace.slower > 0
        assert backend.prices.date

    # --- the store ---

    def test_the_store_keeps_what_is_put_there(self, run: Run) -> None:
        store, prefix = run.store, run.keys.results
        assert store.create(f"{prefix}made/1", b"first")
        assert not store.create(f"{prefix}made/1", b"second")
        store.put(f"{prefix}made/2", b"0123456789")
        store.put_many({f"{prefix}many/{index}": bytes([index]) * 3 for index in range(4)})
        assert store.get(f"{prefix}made/1") == bytes(store.view(f"{prefix}made/1")) == b"first"
        assert store.get_range(f"{prefix}made/2", 2, 5) == b"234"
        assert store.exists(f"{prefix}made/2")
        assert [bytes(each) for each in store.view_many([f"{prefix}many/3", f"{prefix}many/0"])] == [
            b"\3" * 3,
            b"\0" * 3,
        ]
        assert store.list(f"{prefix}ma") == [
            *(f"{prefix}made/{index}" for index in (1, 2)),
            *(f"{prefix}many/{index}" for index in range(4)),
        ]
        store.delete([f"{prefix}made/1", f"{prefix}never/there"])
        assert not store.exists(f"{prefix}made/1")
        for missing in (store.get, store.view):
            with pytest.raises(FileNotFoundError):
                missing(f"{prefix}made/1")
        store.delete(store.list(prefix))
        assert store.list(prefix) == []

    def test_another_process_reaches_the_store_by_the_note(self, backend: Backend, place: Place, run: Run) -> None:
        run.store.put(run.keys.cancel, b"as it was")
        note = PlaceNote.of(json.loads(json.dumps(asdict(place.note()))))
        assert note == place.note()
        with closing(backend.reopen(note)) as store:
            assert store.get(run.keys.cancel) == b"as it was"

    # --- the workers ---

    def test_workers_compute_real_gradients(self, run: Run, prepared: Prepared) -> None:
        """Three chunks, one for each worker; their sum is what this process computes."""
        run.fleet.check(connections=WORKERS)
        assert not any(each.error for each in run.fleet.warm([run.call(worker) for worker in range(WORKERS)]))
        start_s = run.fleet.invoke([run.call(worker) for worker in range(WORKERS)])
        arrivals = run.answers(WORKERS)
        assert {each.worker for each in arrivals} == set(range(WORKERS))
        assert all((each.outcome, each.final) == (Outcome.OK, True) for each in arrivals), arrivals
        assert all(each.at_s >= start_s for each in arrivals)
        assert all(each.billed_s > 0 for each in arrivals)
        assert run.fleet.cpus
        run.trainer.step(0, [(each.results[0], 1.0) for each in arrivals])
        np.testing.assert_allclose(run.trainer.parameters(0), trained_here(prepared), rtol=1e-5, atol=1e-6)

    def test_a_call_that_fails_is_an_outcome_with_a_reason(self, run: Run) -> None:
        """The request names a model that nobody has put into the store."""
        call = run.call(0)
        request = run.requests.build(call)
        (arrival,) = run.fleet.run([(call, _of_another_model(request))])
        assert arrival.outcome is Outcome.FAILED
        assert "does not exist" in arrival.error
        assert run.fleet.run([(call, request)])[0].outcome is Outcome.OK, "the worker goes on"

    def test_answers_may_come_late(self, run: Run) -> None:
        """Those of a round that the next one has overtaken still come, each once."""
        for round in (0, 1):
            run.fleet.invoke([run.call(worker, round) for worker in range(WORKERS)])
        got: list[Arrival] = []
        while (arrival := run.fleet.next(None)) is not None:
            got.append(arrival)
        instants = [each.at_s for each in got]
        assert instants == sorted(instants)
        assert sorted((each.round, each.worker) for each in got) == [(r, w) for r in (0, 1) for w in range(WORKERS)]
        assert all(each.outcome is Outcome.OK for each in got), got

    def test_a_cancelled_life_does_not_compute(self, run: Run) -> None:
        run.store.put(run.keys.cancel, cancel_marker(7))
        run.fleet.invoke([run.call(0, epoch=7)])
        (cancelled,) = run.answers(1)
        assert (cancelled.outcome, cancelled.epoch) == (Outcome.CANCELLED, 7)
        run.fleet.invoke([run.call(0, epoch=8)])
        assert run.answers(1)[0].outcome is Outcome.OK, "the next life computes"

    # --- people ---

    def test_it_says_where_it_is(self, place: Place) -> None:
        assert place.bucket in place.describe()
        assert place.ended() == ""
        assert "/" not in place.pool
        assert place.root.endswith(place.bucket)

    def test_the_doctor_finds_it_fit(self, backend: Backend, prepared: Prepared, tmp_path: Path) -> None:
        findings = list(backend.examine(Examination(tmp_path, prepared.config, worker_mb=300)))
        assert findings
        assert all(each.level is not Level.FAILURE for each in findings), findings
        assert all(each.check and each.says for each in findings)

    def test_nothing_is_left_of_it(self, backend: Backend, prepared: Prepared) -> None:
        warm_emulator.begin()
        before = _children()
        with backend.open(prepared.config, life=1) as place, closing(Run(prepared, place)) as run:
            run.fleet.invoke([run.call(0)])
            run.answers(1)
        wait_until(lambda: _children() <= before)  # who waits for an emulator that is a fork ends just after it


def trained_here(prepared: Prepared) -> Any:
    """Parameters after the step, in one ordinary process."""
    from gradmux.orchestrator.reference import Reference

    module = Reference.of(prepared).modules["line"]
    return np.concatenate([each.detach().numpy().ravel() for each in module.parameters()])


def _of_another_model(request: Any) -> Any:
    from msgspec.structs import replace

    (task,) = request.tasks
    return replace(request, tasks=(replace(task, model=f"specs/{'0' * 64}.json"),))


def _children() -> set[int]:
    found: Sequence[psutil.Process] = psutil.Process().children(recursive=True)
    return {each.pid for each in found if each.status() != psutil.STATUS_ZOMBIE}
