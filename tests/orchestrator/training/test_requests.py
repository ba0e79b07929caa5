"""Requests say exactly what a worker must do, and repeat what they can."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradmux.lambda_worker.contract import Order, Term, encode_request, parse_request
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.schemes.scheme import Skip, Task
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.requests import Wire, wire_dtype
from tests.orchestrator.training.bench import Run, mlp


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run([ModelPlan("a", mlp), ModelPlan("b", mlp, seed=1)], tmp_path, wire=Wire("float64", mode="s3", post=True))
    for job in (0, 1):
        made.trainer.publish(job)
    return made


def call(*slots: Task | None, worker: int = 3) -> Invocation:
    return Invocation(round=2, worker=worker, attempt=4, slots=slots, load=0.25, epoch=6)


def test_every_field(run: Run) -> None:
    task = Task(1, (0, 2), (1.0, -0.5), message=1, skip=Skip(reference=0, threshold=0.1))
    request = run.builder.build(call(None, task))
    assert parse_request(encode_request(request)) == request
    assert (request.op, request.run, request.bucket, request.cancel) == (
        "gradient",
        "test-run",
        "bucket",
        run.keys.cancel,
    )
    assert (request.epoch, request.round, request.worker, request.attempt, request.load) == (6, 2, 3, 4, 0.25)
    assert (request.reply.dtype, request.reply.mode, request.reply.post) == ("float64", "s3", True)
    assert request.reply.prefix == run.keys.mail(6, 2), "what is looked for lies in the round's folder"
    (sent,) = request.tasks
    assert (sent.slot, sent.job, sent.message) == (1, 1, 1)
    assert sent.weights == run.trainer.weights(1)
    assert sent.skip is not None
    assert (sent.skip.weights, sent.skip.threshold) == (run.trainer.weights(0), 0.1)
    assert sent.order == Order(run.dataset.rows, 20, seed=1)
    assert (sent.step, sent.passes) == (0, 20)
    assert sent.terms == (Term(0, 10, 1.0), Term(16, 20, -0.5)), "20 rows, cut into 0.5, 0.3 and 0.2"
    assert sent.model == run.trainer.put_specs()[1]
    cut = run.order.chunks(0, (0, 10, 16, 20))
    for term, rows in zip(sent.terms, (cut[0], cut[2]), strict=True):
        np.testing.assert_array_equal(run.order.rows_of(sent.step, sent.passes, term.first, term.end), rows)


def test_redundant_workers_get_the_same_seeds_and_models_other_ones(run: Run) -> None:
    def seed(job: int, worker: int) -> int:
        (task,) = run.builder.build(call(Task(job, (0, 1), (1.0, 1.0)), worker=worker)).tasks
        return task.seed

    assert seed(0, 1) == seed(0, 2)
    assert seed(0, 1) != seed(1, 1)


def test_chunks_without_rows_are_not_asked_for(tmp_path: Path) -> None:
    run = Run([ModelPlan("a", mlp)], tmp_path, chunk_sizes=(0.5, 0.01, 0.49), batch_size=4)
    run.trainer.publish(0)
    (task,) = run.builder.build(call(Task(0, (0, 1), (1.0, 2.0)))).tasks
    assert task.terms == (Term(0, 2, 1.0),)
    (empty,) = run.builder.build(call(Task(0, (1,), (2.0,)))).tasks
    assert empty.terms == ()
    result = run.answer(call(Task(0, (1,), (2.0,))))[0]
    assert not result.gradient.any()
    assert not result.sums.any()


def test_warming_is_the_same_request_under_another_name(run: Run) -> None:
    invocation = call(Task(0, (0,), (1.0,)))
    warm, plain = run.builder.warm(invocation), run.builder.build(invocation)
    assert (warm.op, warm.reply.post, plain.reply.post) == ("warm", False, True)
    assert warm.tasks == plain.tasks


def test_results_spread_over_prefixes_unless_somebody_looks_for_them(tmp_path: Path) -> None:
    run = Run([ModelPlan("a", mlp)], tmp_path)
    run.trainer.publish(0)
    slots = (Task(0, (0,), (1.0,)), Task(0, (1,), (1.0,), message=1))
    one = Invocation(round=2, worker=3, attempt=1, slots=slots[:1], load=0.5, epoch=6)
    two = Invocation(round=2, worker=3, attempt=1, slots=slots, load=1.0, epoch=6, early=(0.5,))
    modes = [run.builder.build(invocation).reply for invocation in (one, two)]
    assert [(mode.early, mode.prefix) for mode in modes] == [(False, run.keys.spill(2, 3)), (True, run.keys.mail(6, 2))]


@pytest.mark.parametrize(
    ("dtypes", "binary", "half", "dtype"),
    [
        (["float32"], True, False, "float32"),
        (["float32", "float64"], True, False, "float64"),
        (["float32"], False, False, "float64"),
        (["float32"], True, True, "float16"),
    ],
)
def test_the_type_on_the_wire(dtypes: list[str], binary: bool, half: bool, dtype: str) -> None:
    assert wire_dtype(dtypes, binary=binary, half=half) == dtype


def test_codes_that_amplify_rounding_refuse_float16() -> None:
    with pytest.raises(ConfigError, match='results = "float16" needs decode weights of 0 and 1: use code = fractional'):
        wire_dtype(["float32"], binary=False, half=True)
