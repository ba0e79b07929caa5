"""How many rounds and uploads the lazy schemes take to an error of 1e-8, beside plain gradient descent.

Two problems of nine linear-regression shards whose smoothness L_m = (1.3^(m-1) + 1)^2 grows, as in Chen et al. 2018:
random rows scaled to L_m, and the matrices I + 1.3^(m-1) q_m q_m' of the authors' published script. The schemes run
through the loop itself, over exponential delays. The figures called "quoted" are the design's and were not measured.

    python -m benchmarks.lazy [--seed 0]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradmux.orchestrator.distances import RecordedDistances
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.held import Held
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.ports import Invocation, StepResult
from gradmux.orchestrator.record import Decoded, MemoryRecord
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context, FloatArray, Key, Params

SHARDS, ROWS, ACCURACY, MOST_ROUNDS = 9, 50, 1e-8, 400
QUOTED = {"plain descent": "20 / 180", "lag-ps": "50 / 85", "lag-wk": "43 / 82"}
"""iterations / uploads"""


@dataclass(frozen=True, slots=True)
class Problem:
    """Minimise 1/2 sum over shards m of ||x_m w - y_m||^2. Shapes: d features."""

    name: str
    x: FloatArray
    """(shards, rows, d)"""
    y: FloatArray
    """(shards, rows)"""

    @property
    def hessian(self) -> FloatArray:
        """(d, d)"""
        return np.asarray(np.einsum("mri,mrj->ij", self.x, self.x))

    @property
    def rate(self) -> float:
        """1/L of the whole: the step size of all schemes."""
        return float(1.0 / np.linalg.eigvalsh(self.hessian)[-1])

    def smoothness(self) -> list[float]:
        """L_m of every shard."""
        return [float(np.linalg.norm(x, 2) ** 2) for x in self.x]

    def errors(self, path: Sequence[FloatArray]) -> list[float]:
        """Loss above its minimum, at every point of `path`."""
        best = np.linalg.solve(self.hessian, np.einsum("mri,mr->i", self.x, self.y))
        return [float((w - best) @ self.hessian @ (w - best) / 2) for w in path]


def random_rows(seed: int, features: int = 15) -> Problem:
    """Gaussian rows, each shard scaled to its L_m. 15 features: plain descent then takes about the quoted 20 rounds."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(SHARDS, ROWS, features))
    x *= np.array([(1.3**m + 1) / np.linalg.norm(x[m], 2) for m in range(SHARDS)])[:, None, None]
    y = x @ rng.normal(size=features) + 0.1 * rng.normal(size=(SHARDS, ROWS))
    return Problem(f"random rows, {features} features", x, y)


def published_script(seed: int) -> Problem:
    """One steep direction per shard; the same right-hand side for all (normal here, body fat in the original)."""
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.normal(size=(ROWS, ROWS)))
    x = np.stack([np.eye(ROWS) + 1.3**m * np.outer(q[:, m], q[:, m]) for m in range(SHARDS)])
    return Problem("matrices of the published script, 50 features", x, np.tile(rng.normal(size=ROWS), (SHARDS, 1)))


class Descent:
    """`ports.Trainer`, `Distances` and the workers, in numpy: one model, plain gradient descent."""

    def __init__(self, problem: Problem, chunks: int) -> None:
        """`chunks`: parts of each shard."""
        self.problem = problem
        self.path: list[FloatArray] = [np.zeros(problem.x.shape[2])]
        """the weights that each job starts from"""
        self.held = Held()
        parts = [np.array_split(np.arange(ROWS), chunks)] * SHARDS
        self._chunks = [(problem.x[m, rows], problem.y[m, rows]) for m, cut in enumerate(parts) for rows in cut]

    def publish(self, job: int) -> None:
        """Workers look into `path`."""

    def retire(self, job: int) -> None:
        """`path` is kept whole."""

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        total = sum((weight * result for result, weight in results), np.zeros_like(self.path[0]))
        self.path.append(self.path[job] - self.problem.rate * total)
        return StepResult(0.0, 1, 0, 0.0)

    def weights(self, job: int, other: int) -> float:
        return float(np.sum((self.path[job] - self.path[other]) ** 2))

    def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
        return float(np.sum((self._sum(one) - self._sum(other)) ** 2))

    def _sum(self, weights: Mapping[Key, float]) -> FloatArray:
        return np.asarray(sum(weight * self.held[key] for key, weight in weights.items()))

    def compute(self, call: Invocation) -> Mapping[int, FloatArray | None]:
        """What a worker answers; None where it has nothing new."""
        (task,) = call.slots
        assert task is not None

        def coded(job: int) -> FloatArray:
            terms = zip(task.chunks, task.coefficients, strict=True)
            return np.asarray(sum(a * self._gradient(c, self.path[job]) for c, a in terms))

        new = coded(task.job)
        if task.skip is not None and np.sum((new - coded(task.skip.reference)) ** 2) <= task.skip.threshold:
            return {0: None}
        return {0: new}

    def _gradient(self, chunk: int, w: FloatArray) -> FloatArray:
        x, y = self._chunks[chunk]
        return np.asarray(x.T @ (x @ w - y))


@dataclass(frozen=True, slots=True)
class Contestant:
    """One line of the table."""

    label: str
    scheme: str
    params: Params = field(default_factory=dict)
    workers: int = SHARDS
    chunks: int = 1
    """of each shard"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Until the error is below ACCURACY."""

    rounds: int
    uploads: int
    """shard gradients that were sent anew"""
    answers: int
    """results that travelled, redundant ones included"""
    invocations: int


def contestants(problem: Problem) -> list[Contestant]:
    """Plain descent first. L counts for the mean loss of a shard: SHARDS times that of its part of the sum."""
    bounds = ",".join(repr(SHARDS * bound) for bound in problem.smoothness())
    return [
        Contestant("plain descent", "uncoded"),
        Contestant("lag-ps", "lag-ps", {"L": bounds}),
        Contestant("lag-ps, L estimated", "lag-ps"),
        Contestant("lag-wk", "lag-wk"),
        Contestant("g-lag, s = 1", "g-lag", {"s": 1, "L": bounds}, workers=2 * SHARDS),
        Contestant("lagc, s = 1", "lagc", {"groups": SHARDS, "s": 1, "L": bounds}, workers=3 * SHARDS, chunks=3),
    ]


def run(problem: Problem, contestant: Contestant, seed: int) -> Figures:
    """Plays MOST_ROUNDS rounds and looks where the accuracy was reached."""
    plan = JobPlan(1, MOST_ROUNDS)
    descent, record, uploads = Descent(problem, contestant.chunks), MemoryRecord(), [0]
    distances = RecordedDistances(descent)
    context = Context(contestant.workers, plan.jobs, seed=seed, distances=distances, rates=(problem.rate,))
    scheme = build_scheme(contestant.scheme, contestant.params, context)

    def count(_: Decoded) -> None:
        uploads.append(getattr(scheme, "uploads", uploads[-1] + SHARDS))

    delays = np.random.default_rng(seed).exponential(1.0, size=(50, contestant.workers)) + 0.2
    loop = Loop(
        held=descent.held,
        plan=plan,
        rounds=Rounds(scheme, plan, Earliest(), Limits()),
        fleet=ProfileFleet(DelayTable(delays, contestant.workers), LoadModel(), descent.compute),
        trainer=descent,
        recorder=record,
        asked=distances.take,
        on_step=count,
    )
    loop.run()
    rounds = next((k for k, error in enumerate(problem.errors(descent.path)) if error < ACCURACY), None)
    if rounds is None:
        raise SystemExit(f"{contestant.label} did not reach {ACCURACY:g} in {MOST_ROUNDS} rounds")
    before = record.rounds[:rounds]
    answers = sum(len(heard.slots) - len(heard.skipped) for line in before for heard in line.arrivals)
    invocations = sum(len(sent.workers) for line in before for sent in line.sent)
    return Figures(rounds, uploads[rounds], answers, invocations)


def main() -> None:
    """Prints one table for each problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    print(f"{SHARDS} linear shards, loss within {ACCURACY:g} of its minimum; rounds / uploads, seed {seed}")
    for problem in (random_rows(seed), published_script(seed)):
        print(f"\n{problem.name}")
        print(f"{'':22}{'workers':>8}{'measured':>14}{'of plain':>16}{'answers':>9}{'invoked':>9}  quoted")
        plain: Figures | None = None
        for contestant in contestants(problem):
            ours = run(problem, contestant, seed)
            plain = plain or ours
            ratio = f"{ours.rounds / plain.rounds:.2f} / {ours.uploads / plain.uploads:.2f}"
            print(
                f"{contestant.label:22}{contestant.workers:8}{f'{ours.rounds} / {ours.uploads}':>14}{ratio:>16}"
                f"{ours.answers:9}{ours.invocations:9}  {QUOTED.get(contestant.label, '')}"
            )


if __name__ == "__main__":
    main()
