"""Lazy schemes: their iterates are those of shard-level LAG, written down here once more and without a loop."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.distances import RecordedDistances, ReplayedDistances
from gradmux.orchestrator.errors import GradmuxError
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.held import Held
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.ports import Invocation, StepResult
from gradmux.orchestrator.record import MemoryRecord
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.drawing import MadeUp
from gradmux.orchestrator.schemes.lazy import Lazy
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context, FloatArray, Key
from tests.orchestrator.schemes.cases import Session
from tests.orchestrator.schemes.playing import mask

SIZE, RATE = 3, 0.05


@dataclass
class Regression:
    """Per model and shard a quadratic; shards differ in smoothness, which is what laziness lives from."""

    shards: int
    chunks_per_shard: int
    models: int
    seed: int = 0
    curvature: FloatArray = field(init=False)
    target: FloatArray = field(init=False)
    start: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        scale = np.geomspace(0.02, 1.0, self.shards)[None, :, None]
        self.curvature = scale * rng.uniform(0.5, 1.0, size=(self.models, self.shards, SIZE))
        self.target = rng.normal(size=(self.models, self.shards, SIZE))
        self.start = rng.normal(size=(self.models, SIZE)) * 3

    def shard_gradient(self, model: int, shard: int, w: FloatArray) -> FloatArray:
        gradient: FloatArray = self.curvature[model, shard] * (w - self.target[model, shard])
        return gradient

    def chunk_gradient(self, model: int, chunk: int, w: FloatArray) -> FloatArray:
        """A shard's chunks share its gradient unequally: 1, 2, ... parts."""
        shard, place = divmod(chunk, self.chunks_per_shard)
        parts = self.chunks_per_shard * (self.chunks_per_shard + 1) / 2
        return self.shard_gradient(model, shard, w) * (place + 1) / parts


class LazyTrainer:
    """`ports.Trainer` and `Distances` in numpy; keeps every weight vector, but serves only what is not retired."""

    def __init__(self, problem: Regression, plan: JobPlan) -> None:
        self.problem, self.plan = problem, plan
        self.w = [problem.start[m].copy() for m in range(plan.models)]
        self.path: list[list[FloatArray]] = [[w.copy()] for w in self.w]
        self.published: set[int] = set()
        self.retired: set[int] = set()
        self.held = Held()

    def publish(self, job: int) -> None:
        self.published.add(job)

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        m = self.plan.model(job)
        total = sum((weight * result for result, weight in results), np.zeros(SIZE))
        self.w[m] = self.w[m] - RATE * total
        self.path[m].append(self.w[m].copy())
        return StepResult(0.0, 1, 0, float(np.linalg.norm(total)))

    def retire(self, job: int) -> None:
        self.retired.add(job)

    def at(self, job: int) -> FloatArray:
        assert job not in self.retired, f"the weights of job {job} are gone"
        return self.path[self.plan.model(job)][self.plan.step(job)]

    def weights(self, job: int, other: int) -> float:
        return float(np.sum((self.at(job) - self.at(other)) ** 2))

    def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
        return float(np.sum((self.combined(one) - self.combined(other)) ** 2))

    def combined(self, weights: Mapping[Key, float]) -> FloatArray:
        return sum((weight * self.held[key] for key, weight in weights.items()), np.zeros(SIZE))

    def compute(self, call: Invocation) -> Mapping[int, FloatArray | None]:
        (task,) = call.slots
        assert task is not None
        model = self.plan.model(task.job)

        def coded(job: int) -> FloatArray:
            terms = zip(task.chunks, task.coefficients, strict=True)
            return sum((a * self.problem.chunk_gradient(model, c, self.at(job)) for c, a in terms), np.zeros(SIZE))

        new = coded(task.job)
        if task.skip is not None and np.sum((new - coded(task.skip.reference)) ** 2) <= task.skip.threshold:
            return {0: None}
        return {0: new}


def shard_level_lag(
    problem: Regression, model: int, steps: int, history: int, xi: float, smoothness: list[float], by_worker: bool
) -> tuple[FloatArray, int]:
    """LAG of the paper for one model: (weights, uploads)."""
    w = problem.start[model].copy()
    past = [w]
    sent: list[tuple[FloatArray, FloatArray] | None] = [None] * problem.shards
    estimate = [0.0] * problem.shards
    uploads = 0
    for k in range(steps):
        rhs = xi * sum(float(np.sum((past[k + 1 - d] - past[k - d]) ** 2)) for d in range(1, min(history, k) + 1))
        rhs /= RATE**2 * problem.shards**2
        for q in range(problem.shards):
            gradient = problem.shard_gradient(model, q, w)
            last = sent[q]
            if last is not None:
                at, old = last
                bound = smoothness[q] if smoothness else estimate[q]
                change = float(np.sum((gradient - old) ** 2)) if by_worker else bound**2 * float(np.sum((at - w) ** 2))
                if (by_worker or bound > 0) and change <= rhs:
                    continue
                moved = float(np.sum((at - w) ** 2))
                if moved > 0:
                    estimate[q] = max(estimate[q], float(np.sqrt(np.sum((gradient - old) ** 2) / moved)))
            sent[q] = (w.copy(), gradient)
            uploads += 1
        w = w - RATE * sum((s[1] for s in sent if s is not None), np.zeros(SIZE))
        past.append(w)
    return w, uploads


CASES: list[tuple[str, dict[str, float | int | str], int, int, list[float], bool]] = [
    # name, parameters, shards, chunks per shard, smoothness of the shards' sums (none: estimated), by the worker?
    ("lag-wk", {}, 6, 1, [], True),
    ("lag-ps", {"L": 3.0}, 6, 1, [0.5] * 6, False),
    ("lag-ps", {"L": "0.3,0.6,0.9,1.2,3,6"}, 6, 1, [0.05, 0.1, 0.15, 0.2, 0.5, 1.0], False),
    ("lag-ps", {}, 6, 1, [], False),
    ("g-lag", {"s": 1, "L": 1.5}, 3, 1, [0.5] * 3, False),
    ("g-lag", {"s": 2}, 2, 1, [], False),
    ("lagc", {"groups": 2, "s": 1, "L": 1.0}, 2, 3, [0.5] * 2, False),
    ("lagc", {"groups": 2, "s": 1}, 2, 3, [], False),
    ("lagc", {"groups": 2, "s": 1, "code": "fractional"}, 2, 1, [], False),
]


@dataclass
class Played:
    trainer: LazyTrainer
    scheme: Lazy
    record: MemoryRecord


def play(
    name: str, params: dict[str, float | int | str], problem: Regression, delays: FloatArray, steps: int,
    replay: MemoryRecord | None = None,
) -> Played:  # fmt: skip
    plan = JobPlan(problem.models, steps)
    trainer = LazyTrainer(problem, plan)
    asked = [line.asked for line in replay.rounds] if replay else []
    source = ReplayedDistances([pair for pairs in asked for pair in pairs]) if replay else trainer
    distances = RecordedDistances(source)
    context = Context(6, plan.jobs, models=plan.models, distances=distances)
    scheme = build_scheme(name, params | {"alpha": RATE, "D": 4}, context)
    assert isinstance(scheme, Lazy)
    record = MemoryRecord()
    loop = Loop(
        held=trainer.held,
        plan=plan,
        rounds=Rounds(scheme, plan, Earliest(), Limits()),
        fleet=ProfileFleet(DelayTable(delays, 6), LoadModel(), trainer.compute),
        trainer=trainer,
        recorder=record,
        asked=distances.take,
    )
    loop.run()
    loop.drain(1e9)
    return Played(trainer, scheme, record)


@pytest.mark.parametrize(("name", "params", "shards", "chunks", "smoothness", "by_worker"), CASES, ids=str)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), models=st.integers(1, 2))
def test_iterates_are_those_of_shard_level_lag(
    name: str,
    params: dict[str, float | int | str],
    shards: int,
    chunks: int,
    smoothness: list[float],
    by_worker: bool,
    seed: int,
    models: int,
) -> None:
    delays = np.random.default_rng(seed).exponential(1.0, size=(9, 6)) + 0.1
    problem = Regression(shards, chunks, models, seed)
    steps = 25
    played = play(name, params, problem, delays, steps)
    expected = [
        shard_level_lag(problem, m, steps, 4, (1.0 if by_worker else 10.0) / 4, smoothness, by_worker)
        for m in range(models)
    ]
    for got, (w, _) in zip(played.trainer.w, expected, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-9, atol=1e-12)
    uploads = sum(count for _, count in expected)
    assert played.scheme.uploads == uploads
    assert uploads < models * steps * shards, "something was saved"


@pytest.mark.parametrize(
    ("name", "params", "workers", "shards"),
    [("g-lag", {"s": 1}, 4, 2), ("lagc", {"groups": 2, "s": 1}, 6, 2)],
)
def test_whoever_straggles_each_shard_stands_as_it_was_last_asked(
    name: str, params: dict[str, float | int | str], workers: int, shards: int
) -> None:
    """Every tolerated pattern of three rounds: the same shards are asked, and the sum is the same. No other decodes."""
    patterns, asked = 0, set()
    begun = [pickle.dumps(Session(lazy_scheme(name, params, workers)))]
    for t in range(3):
        ended = []
        for state in begun:
            opened: Session = pickle.loads(state)
            invoked = opened.start()
            asked.add((t, *invoked))
            for late, tolerated in judged(opened, invoked):
                session: Session = pickle.loads(pickle.dumps(opened))
                session.answer(worker for worker in invoked if worker not in late)
                assert session.scheme.may_start(t + 1) == tolerated
                if not tolerated:
                    continue
                assert session.close() == (t,)
                stands_as_asked(session, workers // shards, t)
                ended.append(pickle.dumps(session))
                patterns += 1
        begun = ended
    assert len(asked) == 3, "who is asked does not depend on who straggled"
    assert patterns > 100


class Descent:
    """`Distances` and workers of one run of one model; every branch of a play has its own."""

    def __init__(self, problem: Regression) -> None:
        self.problem, self.path = problem, [problem.start[0]]
        self.results: dict[Key, FloatArray] = {}

    def weights(self, job: int, other: int) -> float:
        return float(np.sum((self.path[job] - self.path[other]) ** 2))

    def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
        return float(np.sum((self.combined(one) - self.combined(other)) ** 2))

    def combined(self, weights: Mapping[Key, float]) -> FloatArray:
        return sum((weight * self.results[key] for key, weight in weights.items()), np.zeros(SIZE))

    def compute(self, session: Session) -> None:
        """What all workers of the open round would send."""
        for key in session.open_keys():
            task = session.tasks[key]
            parts = [self.problem.chunk_gradient(0, chunk, self.path[task.job]) for chunk in task.chunks]
            self.results[key] = np.asarray(task.coefficients) @ np.array(parts)

    def step(self, weights: Mapping[Key, float]) -> None:
        self.path.append(self.path[-1] - RATE * self.combined(weights))


@pytest.mark.parametrize(
    ("name", "params", "workers", "chunks", "smoothness"),
    [
        ("g-lag", {"s": 1}, 4, 1, []),
        ("g-lag", {"s": 1, "L": "0.04,2.0"}, 4, 1, [0.02, 1.0]),
        ("lagc", {"groups": 2, "s": 1}, 6, 3, []),
        ("lagc", {"groups": 2, "s": 1, "L": "0.04,2.0"}, 6, 3, [0.02, 1.0]),
        ("lagc", {"groups": 2, "s": 1, "code": "fractional"}, 5, 1, []),
    ],
    ids=str,
)
def test_iterates_are_those_of_shard_level_lag_whoever_straggles(
    name: str, params: dict[str, float | int | str], workers: int, chunks: int, smoothness: list[float]
) -> None:
    """Every tolerated pattern of three steps, over real gradients: two shards; the flatter one is soon left out."""
    problem, history, xi = Regression(2, chunks, 1, seed=5), 2, 1e-4
    lag = [shard_level_lag(problem, 0, k, history, xi, smoothness, by_worker=False) for k in range(4)]
    descent = Descent(problem)
    scheme = build_scheme(
        name, {**params, "D": history, "xi": xi}, Context(workers, 3, distances=descent, rates=(RATE,))
    )
    assert isinstance(scheme, Lazy)
    begun, patterns = [pickle.dumps((Session(scheme), descent))], 0
    for t in range(3):
        ended = []
        for state in begun:
            opened, before = pickle.loads(state)
            invoked = opened.start()
            before.compute(opened)
            start = pickle.dumps((opened, before))
            for late in (late for late, tolerated in judged(opened, invoked) if tolerated):
                session, descent = pickle.loads(start)
                session.answer(worker for worker in invoked if worker not in late)
                assert session.close() == (t,)
                descent.step(session.decoded[t].weights)
                np.testing.assert_allclose(descent.path[-1], lag[t + 1][0], rtol=1e-9, atol=1e-12)
                assert session.scheme.uploads == lag[t + 1][1]
                ended.append(pickle.dumps((session, descent)))
                patterns += 1
        begun = ended
    assert lag[3][1] < 2 * 3, "something was saved"
    assert patterns > 100


def lazy_scheme(name: str, params: dict[str, float | int | str], workers: int) -> Lazy:
    context = Context(workers, 3, distances=MadeUp(1, workers), rates=(1.0,))
    scheme = build_scheme(name, {**params, "D": 1, "xi": 1.0}, context)
    assert isinstance(scheme, Lazy)
    return scheme


def judged(session: Session, invoked: list[int]) -> list[tuple[set[int], bool]]:
    """Every straggler set of the open round, and whether the widest model admits it."""
    model = session.scheme.straggler_model("either")
    sets = [set(late) for size in range(len(invoked) + 1) for late in combinations(invoked, size)]
    return [(late, model.admits(mask(session.scheme.workers, late))) for late in sets]


def stands_as_asked(session: Session, members: int, t: int) -> None:
    """The rows of each shard add up to 1 on its chunks, and all were computed in the round that asked for it last.

    The amplification that is told is that of the worst shard, new or old.
    """
    decoding, squares = session.decoded[t], dict[int, float]()
    np.testing.assert_allclose(session.combined_row(decoding), 1.0, atol=1e-12)
    for key, weight in decoding.weights.items():
        shard = key.worker // members
        assert key.round == max(r for r, asked in enumerate(session.invoked) if shard * members in asked)
        row = np.linalg.norm(session.tasks[key].coefficients)
        squares[shard] = squares.get(shard, 0.0) + float(weight * row) ** 2 / members
    assert decoding.amplification == pytest.approx(max(squares.values()) ** 0.5)


def test_a_record_of_a_lazy_run_replays_with_the_recorded_distances() -> None:
    problem = Regression(6, 1, 2)
    delays = np.random.default_rng(0).exponential(1.0, size=(9, 6)) + 0.1
    first = play("lag-ps", {}, problem, delays, 20)
    again = play("lag-ps", {}, problem, delays, 20, replay=first.record)
    assert again.record.lines == first.record.lines


def test_a_replay_that_asks_something_else_says_so() -> None:
    replay = ReplayedDistances([("w2-0", 1.0)])
    with pytest.raises(GradmuxError, match="asks for the distance w3-1, but the record goes on with w2-0"):
        replay.weights(3, 1)
