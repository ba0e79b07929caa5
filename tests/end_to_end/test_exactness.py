"""Slow, crashing and throttled workers at once: every scheme trains as one ordinary process does on the same batches.

Weights agree to 1e-5 (relative, float32), and each step's loss, sample count and correct predictions with them. Where a
code's weights are all 1, the sums have one order whoever answered: runs, and schemes that cut a batch alike, then
agree to the last bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pytest
import torch

from gradmux.infra.local import FaultKind, FaultPlan, FaultRate, ScheduledFault
from gradmux.lambda_worker import flat
from gradmux.orchestrator.policies import Limits, Mu
from gradmux.orchestrator.ports import Outcome
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.reference import train_reference
from tests.end_to_end.stage import Job, Played, Stage
from tests.orchestrator.training.bench import mlp, tied

PLANS = (
    ModelPlan("tied", tied, optimizer="SGD", optimizer_args={"lr": 0.2, "momentum": 0.9}),
    ModelPlan("small", mlp, {"hidden": 3}, optimizer="Adam", optimizer_args={"lr": 0.02}),
    ModelPlan("normed", mlp, {"hidden": 9, "norm": True}, optimizer="AdamW", optimizer_args={"lr": 0.02}),
    ModelPlan("wide", mlp, {"hidden": 40}, optimizer="SGD", optimizer_args={"lr": 0.3}),
)
LIMITS = Limits(attempts=6)
TIME_SCALE = 0.015
"""Lambda's second: most answers take some 20 ms, timeouts half a second."""
EARLY_CRASHES = (ScheduledFault(0, 0, FaultKind.CRASH), ScheduledFault(2, 5, FaultKind.CRASH))

Params = Mapping[str, int | float | str]
EXACT: list[tuple[str, Params]] = [
    ("uncoded", {}),
    ("gc", {"s": 2}),
    ("gc", {"s": 2, "code": "cyclic"}),
    ("gc", {"s": 1, "code": "dft"}),
    ("sr-sgc", {"B": 1, "W": 2, "lambda": 3}),
    ("sr-sgc", {"B": 2, "W": 3, "lambda": 2, "code": "cyclic"}),
    ("m-sgc", {"B": 1, "W": 2, "lambda": 2}),
    ("m-sgc", {"B": 2, "W": 3, "lambda": 3, "code": "cyclic"}),
    ("m-sgc", {"B": 1, "W": 2, "lambda": 8}),
    ("backup", {}),
    ("gc-partial", {"m": 1, "s": 2}),
    ("gc-partial", {"m": 1, "s": 1, "code": "cyclic"}),
    ("grouping", {"G": 3}),
    ("pipeline", {"n": 6, "s": 2}),
    ("pipeline-auto", {}),
    ("fastest-k", {"k": 8}),
    ("agc", {"s": 1, "r": 8}),
]


def job(scheme: str, params: Params, workers: int = 8, **changed: object) -> Job:
    limits = Limits(attempts=6, concurrency=16) if scheme.startswith("pipeline") else LIMITS
    options = {"plans": PLANS, "limits": limits, "steps": 3, **changed}
    return Job(scheme=scheme, params=params, workers=workers, **options)  # type: ignore[arg-type]


def play_in_trouble(stage: Stage, played: Job, seed: int = 3) -> Played:
    """Stragglers, crashes and refusals, all at once."""
    stage.lambda_like(TIME_SCALE, workers=12, seed=seed)
    rates = (
        FaultRate(FaultKind.CRASH, 0.02),
        FaultRate(FaultKind.THROTTLE, 0.1),
        FaultRate(FaultKind.UNAVAILABLE, 0.03),
    )
    stage.emulator.set_faults(FaultPlan(rates, EARLY_CRASHES, seed))
    return stage.play(played)


@cache
def plain_weights(index: int, steps: int) -> np.ndarray:  # type: ignore[type-arg]
    """Parameters and buffers of a model after ordinary training."""
    return np.asarray(flat.snapshot(plain(index, steps)[0]))


@cache
def plain(index: int, steps: int) -> tuple[torch.nn.Module, list[float]]:
    made = job("uncoded", {})
    return train_reference(PLANS[index], made.dataset, made.order, steps)


@cache
def plain_correct(index: int, step: int) -> int:
    """Right predictions on the batch of `step`, with the weights before it."""
    made, module = job("uncoded", {}), plain(index, step)[0]
    rows = made.order.batch(step)
    with torch.no_grad():
        scores = module(torch.from_numpy(made.dataset.x[rows]))
    return int((scores.argmax(1).numpy() == made.dataset.y[rows]).sum())


def weights(played: Played) -> list[np.ndarray]:  # type: ignore[type-arg]
    return [np.asarray(flat.snapshot(played.trainer.module(index))) for index in range(played.job.plan.models)]


def relative_errors(played: Played) -> list[float]:
    """By model: |weights - ordinary training's| / |ordinary training's|."""
    expected = [plain_weights(index, played.job.steps) for index in range(played.job.plan.models)]
    pairs = zip(weights(played), expected, strict=True)
    return [float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted)) for got, wanted in pairs]


def assert_ordinary(played: Played) -> None:
    made = played.job
    assert max(relative_errors(played)) < 1e-5
    assert [item.job for item in played.decoded] == list(range(made.plan.jobs))
    for item in played.decoded:
        assert item.count == made.batch_size
        assert item.correct == plain_correct(item.model, item.step)
        assert item.loss == pytest.approx(plain(item.model, made.steps)[1][item.step], rel=1e-5)
        assert item.residual < 1e-9


def assert_one_post_per_attempt(played: Played) -> None:
    """What the record says was invoked is what the emulator has let in, once each; refused calls came again."""
    assert Counter(played.let_in) == Counter(set(played.attempts)), "let in, against sent according to the record"


@pytest.mark.parametrize(("scheme", "params"), EXACT, ids=str)
def test_every_scheme_trains_as_one_ordinary_process(stage: Stage, scheme: str, params: Params) -> None:
    before = stage.emulator.statistics()
    played = play_in_trouble(stage, job(scheme, params))
    after = stage.emulator.statistics()
    assert_ordinary(played)
    assert_one_post_per_attempt(played)
    assert {Outcome.OK, Outcome.CRASHED} <= {Outcome(item.outcome) for item in played.heard}
    assert after["refused"]["TooManyRequestsException"] > before["refused"].get("TooManyRequestsException", 0)


@pytest.mark.parametrize(("scheme", "params"), [("gc", {"s": 2}), ("m-sgc", {"B": 1, "W": 2, "lambda": 2})], ids=str)
@pytest.mark.parametrize("wait_out", ["until", "all"])
def test_the_papers_rule_is_as_exact(stage: Stage, scheme: str, params: Params, wait_out: str) -> None:
    played = play_in_trouble(stage, job(scheme, params, wait=Mu(0.5, wait_out=wait_out)))  # type: ignore[arg-type]
    assert_ordinary(played)


def test_late_answers_are_part_of_these_runs(stage: Stage) -> None:
    """So that nothing here is exact only because everybody was on time."""
    played = play_in_trouble(stage, job("m-sgc", {"B": 1, "W": 2, "lambda": 2}))
    ends = {line.round: line.end_s for line in played.rounds}
    assert sum(item.at_s > ends[item.round] for item in played.heard) >= 3
    assert any(line.late for line in played.rounds)


# --- to the last bit ---------------------------------------------------------------------------------------------

FOUR_CHUNKS: list[tuple[str, Params, int]] = [
    ("uncoded", {}, 4),
    ("backup", {}, 4),
    ("fastest-k", {"k": 4}, 4),
    ("gc", {"s": 1}, 8),
    ("sr-sgc", {"B": 1, "W": 2, "lambda": 2}, 8),
    ("grouping", {"G": 4}, 10),
    ("pipeline", {"n": 8, "s": 1}, 8),
]
"""Schemes whose fractional code cuts a batch into four equal chunks."""


def test_schemes_that_cut_a_batch_alike_give_the_same_bits(stage: Stage) -> None:
    runs = [
        play_in_trouble(stage, job(scheme, params, workers, steps=2), seed=seed)
        for seed, (scheme, params, workers) in enumerate(FOUR_CHUNKS)
    ]
    assert_same_bits(runs)


@pytest.mark.parametrize(
    ("scheme", "params"),
    [
        ("m-sgc", {"B": 1, "W": 2, "lambda": 2}),
        ("m-sgc", {"B": 2, "W": 3, "lambda": 3}),
        ("gc-partial", {"m": 1, "s": 2}),
    ],
    ids=str,
)
def test_runs_of_one_scheme_give_the_same_bits_whoever_was_slow(stage: Stage, scheme: str, params: Params) -> None:
    assert_same_bits([play_in_trouble(stage, job(scheme, params, steps=2), seed=seed) for seed in (1, 2)])


def assert_same_bits(runs: Sequence[Played]) -> None:
    first = runs[0]
    assert len({tuple(item.weights_crc for item in played.decoded) for played in runs}) > 1, "others were first"
    for played in runs[1:]:
        for got, expected in zip(weights(played), weights(first), strict=True):
            np.testing.assert_array_equal(got, expected, err_msg=played.job.scheme)
        told = [(item.loss, item.count, item.correct, item.gradient_norm) for item in played.decoded]
        assert told == [(item.loss, item.count, item.correct, item.gradient_norm) for item in first.decoded]
