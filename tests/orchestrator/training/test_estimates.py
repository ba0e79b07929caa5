"""Approximate gradients are divided by the batch's own count: their factors have an effect, and no bias is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradmux.lambda_worker.contract import SumIndex
from gradmux.orchestrator.ports import Invocation, StepResult
from gradmux.orchestrator.runs.policy import divided_by
from gradmux.orchestrator.schemes.asks import SelfNormalises
from gradmux.orchestrator.schemes.checked import Checked
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context, Decoding, Key
from gradmux.orchestrator.training.estimates import of_batch
from gradmux.orchestrator.training.gradients import CodedResult
from gradmux.orchestrator.training.models import ModelPlan
from tests.orchestrator.training.bench import Run, make_dataset, mlp

LR = 0.5
PLAN = ModelPlan("m", mlp, optimizer="SGD", optimizer_args={"lr": LR}, dtype="float64", seed=3)
DRAWS = 250


class Estimating:
    """One step of one model, again and again from the same weights, by the answers that happened to come."""

    def __init__(self, folder: Path, name: str, params: dict[str, int | str], workers: int) -> None:
        self.name, self.params, self.workers = name, params, workers
        built = build_scheme(name, params, Context(workers, 1))
        self_normalised, sizes = isinstance(built, SelfNormalises) and built.self_normalised, built.chunk_sizes
        self.run = Run(
            [PLAN],
            folder,
            chunk_sizes=sizes.tolist(),
            batch_size=24,
            dataset=make_dataset(dtype="float64"),
            options={"batch_rows": None if self_normalised else 24},
        )
        self.begin = self.run.trainer.state(0)
        self.run.trainer.publish(0)
        self.chunks = [self._chunk(chunk) for chunk in range(len(sizes))]

    def _chunk(self, chunk: int) -> CodedResult:
        """What a worker sends of one chunk at the first weights."""
        from gradmux.orchestrator.schemes.scheme import Task

        return self.run.answer(Invocation(0, chunk, 1, (Task(0, (chunk,), (1.0,)),), 0.1))[0]

    def step(self, order: list[int], seed: int = 0) -> tuple[np.ndarray, StepResult]:
        """(p,) the gradient that the optimizer stepped by when workers answer in this order, and what was told."""
        scheme = Checked(build_scheme(self.name, self.params, Context(self.workers, 1, seed=seed)))
        tasks = {worker: slots[0] for worker, slots in scheme.assign(0).items()}
        for worker in order:
            if scheme.decodable(0):
                break
            scheme.heard(Key(0, worker, 0))
        decoding: Decoding = scheme.decode(0)
        terms = []
        for key, weight in decoding.weights.items():
            task = tasks[key.worker]
            assert task is not None
            terms += [(self.chunks[chunk], weight) for chunk in task.chunks]
        trainer = self.run.trainer
        trainer.load_state(0, self.begin)
        before = trainer.parameters(0)
        told = trainer.step(0, terms)
        return (before - trainer.parameters(0)) / LR, told

    @property
    def exact(self) -> np.ndarray:
        """(p,) the mean gradient of the batch."""
        return np.sum([chunk.gradient for chunk in self.chunks], axis=0) / 24


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("fastest-k", {"k": 3}),
        ("agc", {"s": 1, "r": 3, "unbiased": "true"}),
        ("agc", {"s": 2, "r": 2, "unbiased": "true"}),
    ],
)
def test_the_mean_of_many_steps_is_the_exact_step(name: str, params: dict[str, int | str], tmp_path: Path) -> None:
    """Within 4 standard errors along the exact step, and by Hotelling's measure over all parameters."""
    estimating, rng = Estimating(tmp_path, name, params, 6), np.random.default_rng(1)
    found = np.array([estimating.step(rng.permutation(6).tolist(), seed)[0] for seed in range(DRAWS)])
    exact = estimating.exact
    along = found @ exact / (exact @ exact)
    error = along.std(ddof=1) / np.sqrt(DRAWS)
    assert error > 0.001, "the draws must differ for this to say anything"
    assert abs(along.mean() - 1.0) < 4 * error
    spread = found.std(axis=0, ddof=1) / np.sqrt(DRAWS)
    assert np.mean(((found.mean(axis=0) - exact) / np.maximum(spread, 1e-12)) ** 2) < 4.0


def test_dividing_by_the_decoded_count_would_cancel_the_factors(tmp_path: Path) -> None:
    """The mistake that this replaces: with and without factors the steps would have the same bits."""
    with_factors = Estimating(tmp_path / "a", "agc", {"s": 1, "r": 2, "unbiased": "true"}, 4)
    without = Estimating(tmp_path / "b", "agc", {"s": 1, "r": 2, "unbiased": "false"}, 4)
    order = with_factors_order(with_factors)
    ratio = with_factors.step(order)[0] / without.step(order)[0]
    np.testing.assert_allclose(ratio, 6 / 5, rtol=1e-5)


def with_factors_order(estimating: Estimating) -> list[int]:
    """An order of arrival in which the first two answers are of different groups."""
    scheme = build_scheme(estimating.name, estimating.params, Context(estimating.workers, 1))
    chunk = {worker: slots[0].chunks[0] for worker, slots in scheme.assign(0).items() if slots[0] is not None}
    other = next(worker for worker in range(1, 4) if chunk[worker] != chunk[0])
    return [0, other, *(worker for worker in range(1, 4) if worker != other)]


def test_one_step_by_hand(tmp_path: Path) -> None:
    """n = 4, s = 1, r = 2: both answers are of one group, p = 1/6: the step is 6/5 g_0 over the 24 rows."""
    estimating = Estimating(tmp_path, "agc", {"s": 1, "r": 2}, 4)
    scheme = build_scheme("agc", {"s": 1, "r": 2}, Context(4, 1))
    chunk = {worker: slots[0].chunks[0] for worker, slots in scheme.assign(0).items() if slots[0] is not None}
    pair = [worker for worker in range(4) if chunk[worker] == chunk[0]]
    found, told = estimating.step([*pair, *(worker for worker in range(4) if worker not in pair)])
    g_0 = estimating.chunks[chunk[0]]
    np.testing.assert_allclose(found, 6 / 5 * g_0.gradient / 24, rtol=1e-12)
    assert told.count == 24
    assert told.loss == pytest.approx(6 / 5 * g_0.sums[SumIndex.LOSS] / 24)
    assert told.correct <= 24


@pytest.mark.parametrize(("name", "params"), [("agc", {"s": 1, "r": 2}), ("fastest-k", {"k": 2})])
def test_self_normalised_is_the_mean_over_the_rows_that_came(
    name: str, params: dict[str, int | str], tmp_path: Path
) -> None:
    """n = 5 of 24 rows, so that parts have unequal numbers of rows; of `agc` both answers are of one group."""
    own = Estimating(tmp_path / "own", name, {**params, "normalise": "decoded"}, 5)
    batch = Estimating(tmp_path / "batch", name, params, 5)
    scheme = build_scheme(name, params, Context(5, 1))
    chunk = {worker: slots[0].chunks[0] for worker, slots in scheme.assign(0).items() if slots[0] is not None}
    alike = [worker for worker in range(1, 5) if chunk[worker] == chunk[0]] or [1, 2, 3, 4]
    order = [0, alike[0], *(worker for worker in range(1, 5) if worker != alike[0])]
    came = [own.chunks[c] for c in sorted({chunk[0], chunk[alike[0]]})]
    rows = sum(each.sums[SumIndex.SAMPLES] for each in came)
    found = own.step(order)[0]
    np.testing.assert_allclose(found, np.sum([each.gradient for each in came], axis=0) / rows, rtol=1e-5)
    assert np.abs(batch.step(order)[0] / found - 1.0).max() > 0.01, "else the option would change nothing"


def test_a_run_divides_as_its_scheme_asks() -> None:
    for name, params in (("agc", {"s": 1, "r": 2}), ("fastest-k", {"k": 2})):
        own = build_scheme(name, {**params, "normalise": "decoded"}, Context(4, 1))
        assert divided_by(own, 24) is None
        assert divided_by(Checked(own), 24) is None
        assert divided_by(build_scheme(name, params, Context(4, 1)), 24) == 24
    assert divided_by(build_scheme("uncoded", {}, Context(4, 1)), 24) == 24


def test_no_count_is_larger_than_the_batch(tmp_path: Path) -> None:
    estimating = Estimating(tmp_path, "fastest-k", {"k": 1}, 6)
    for worker in range(6):
        told = estimating.step([worker, *(other for other in range(6) if other != worker)])[1]
        assert told.count == 24
        assert 0 <= told.correct <= 24


def test_an_exact_decode_keeps_its_bits_and_ignored_rows_keep_their_share() -> None:
    sums = np.zeros(8)
    sums[[SumIndex.SAMPLES, SumIndex.COUNT, SumIndex.LOSS, SumIndex.CORRECT]] = 24 * (1 + 1e-9), 18.0, 9.0, 20.0
    total = CodedResult(np.ones(3), sums)
    assert of_batch(total, 24) is total
    assert of_batch(total, None) is total
    estimated = of_batch(CodedResult(np.ones(3), 1.5 * sums), 24)
    assert estimated.sums[SumIndex.SAMPLES] == 24
    assert estimated.sums[SumIndex.COUNT] == pytest.approx(18.0)
    assert estimated.sums[SumIndex.LOSS] == 13.5
    assert estimated.sums[SumIndex.CORRECT] == 24
