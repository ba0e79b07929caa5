"""Stretches: the same bits as single steps, whatever the model; states, markers, budgets, and steps that diverge."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from msgspec.structs import replace

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.contract import (
    Order,
    Reply,
    ReplyMode,
    Request,
    Result,
    State,
    Stretch,
    Task,
    Term,
    Weights,
    cancel_marker,
    decode_result,
)
from gradmux.lambda_worker.models import ModelSpec, build, encode_spec, parse_spec
from gradmux.lambda_worker.recipe import Recipe
from gradmux.lambda_worker.sandbox import Stepping
from gradmux.lambda_worker.whole import encode_whole, load_whole
from tests.lambda_worker.workbench import HERE, ROWS, Workbench

BATCH, PASSES, SEED = 12, 3, 5
BATCHES = Order(ROWS, BATCH, seed=3)

ADAM = Recipe(
    "AdamW", {"lr": 0.05}, scheduler="OneCycleLR", scheduler_args={"max_lr": 0.1, "total_steps": 40}, clip_norm=0.3
)
PLATEAU = Recipe("SGD", {"lr": 0.2, "momentum": 0.9}, scheduler="ReduceLROnPlateau", ema=0.9)


def stepped(factory: str, recipe: Recipe, **fields: Any) -> ModelSpec:
    return ModelSpec(HERE + factory, recipe=cloudpickle.dumps(partial(dict.get, {0: recipe}, 0)), **fields)


CASES = {
    "adam": stepped("mlp", ADAM),
    "plateau": stepped("mlp", PLATEAU),
    "dropout": stepped("with_dropout", ADAM, fixed=True),
    "running": stepped("with_norm", PLATEAU),
    "batch": stepped("with_norm", ADAM, fixed=True, norms="batch"),
    "drifting": stepped("drifting", ADAM, fixed=True),
    "double": stepped("mlp", ADAM, dtype="float64"),
}


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def beginning(spec: ModelSpec) -> bytes:
    stepping = Stepping.of(spec)
    return encode_whole(stepping.model, stepping.stepper)


def stretch_of(
    bench: Workbench, spec: ModelSpec, state: State | bytes, first: int, steps: int, **fields: Any
) -> Stretch:
    state = State.of(state) if isinstance(state, bytes) else state
    key = bench.put(encode_spec(spec))
    return Stretch(0, 0, key, state, BATCHES, first, steps, PASSES, SEED, **fields)


def asked(bench: Workbench, stretch: Stretch, **fields: Any) -> Request:
    wire = "float64" if parse_spec(bench.objects.get(stretch.model)).dtype == "float64" else "float32"
    plain = Request("steps", "run", 3, 5, 2, "bucket", data=bench.data, reply=ReplyMode(dtype=wire, prefix="runs/run/"))
    return replace(plain, stretches=(stretch,), load=float(stretch.steps), **fields)


def answer(bench: Workbench, stretch: Stretch, worker: Any = None, **fields: Any) -> Result:
    reply: Reply = bench.ask(asked(bench, stretch, **fields), worker)
    return reply.results[0]


def by_single_steps(bench: Workbench, spec: ModelSpec, steps: int) -> tuple[bytes, list[float]]:
    """What a client does: a gradient from a worker, then its own step."""
    stepping, losses = Stepping.of(spec), []
    model = bench.put(encode_spec(replace_recipe(spec)))
    wire = "float64" if spec.dtype == "float64" else "float32"
    for step in range(steps):
        weights = Weights.of(flat.to_bytes(flat.snapshot(stepping.model.module)))
        task = Task(0, step, model, weights, BATCHES, step, PASSES, (Term(0, PASSES),), seed=SEED)
        reply = ReplyMode(dtype=wire, prefix="runs/run/")
        (result,) = bench.ask(bench.request(task, reply=reply)).results
        assert result.buffer is not None, result.error
        gradient, sums, buffers = (torch.from_numpy(np.array(each)) for each in decode_result(result.buffer))
        told = stepping.stepper.step(gradient, sums)
        stepping.model.set_buffers(buffers)
        losses.append(told.loss)
    return encode_whole(stepping.model, stepping.stepper), losses


def replace_recipe(spec: ModelSpec) -> ModelSpec:
    return ModelSpec(spec.factory, spec.args, spec.loss, spec.dtype, spec.seed, spec.fixed, spec.norms)


def losses_of(result: Result) -> list[float]:
    assert result.stretch is not None, result.error
    figures = result.stretch.figures
    return [loss / count for loss, count in zip(figures.loss, figures.count, strict=True)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("cut", [(7,), (3, 4), (1, 5, 1)])
def test_any_cut_into_stretches_gives_the_bits_of_single_steps(
    bench: Workbench, name: str, cut: tuple[int, ...]
) -> None:
    """Over the end of an epoch, too: 3 batches of 40 rows. One worker keeps its own state, others are given it."""
    spec, losses, first = CASES[name], list[float](), 0
    state = beginning(spec)
    for number, steps in enumerate(cut):
        worker = bench.worker if number % 2 else bench.new_worker()
        result = answer(bench, stretch_of(bench, spec, state, first, steps), worker)
        assert result.buffer is not None, result.error
        state, first = bytes(result.buffer), first + steps
        losses += losses_of(result)
    expected, plain = by_single_steps(bench, spec, sum(cut))
    assert state == expected
    assert losses == plain


def test_a_worker_goes_on_from_its_own_state_without_reading_it(bench: Workbench) -> None:
    """The object is gone, and so only the worker that made it can go on."""
    spec = CASES["adam"]
    whole = ReplyMode(mode="s3", prefix="runs/run/")
    first = answer(bench, stretch_of(bench, spec, beginning(spec), 0, 2), reply=whole)
    assert first.key is not None
    assert first.key.endswith(hashlib.sha256(bench.objects.objects[first.key]).hexdigest())
    del bench.objects.objects[first.key]
    following = stretch_of(bench, spec, State(key=first.key), 2, 2)
    assert answer(bench, following, bench.new_worker()).status == "failed"
    second = answer(bench, following)
    assert second.buffer == by_single_steps(bench, spec, 4)[0]
    assert answer(bench, following).status == "failed", "it is in another state now"


def test_a_step_that_diverges_is_a_result_with_the_state_before_it(bench: Workbench) -> None:
    wild = stepped("mlp", Recipe("SGD", {"lr": 1e38}))
    result = answer(bench, stretch_of(bench, wild, beginning(wild), 0, 9))
    assert result.stretch is not None
    assert result.stretch.diverged is not None
    made = result.stretch.steps
    assert 0 < made == result.stretch.diverged.step < 9
    assert result.buffer == by_single_steps(bench, wild, made)[0]
    again = answer(bench, stretch_of(bench, wild, bytes(result.buffer), made, 5))
    assert again.stretch is not None
    assert (again.stretch.steps, again.buffer) == (0, result.buffer)


def test_a_stretch_whose_time_is_over_answers_what_is_done(bench: Workbench) -> None:
    spec = CASES["adam"]
    result = answer(bench, stretch_of(bench, spec, beginning(spec), 0, 9, budget_s=0.0))
    assert result.stretch is not None
    assert (result.stretch.steps, result.buffer) == (1, by_single_steps(bench, spec, 1)[0])


def test_snapshots_are_kept_for_evaluation(bench: Workbench) -> None:
    spec = CASES["running"]
    result = answer(bench, stretch_of(bench, spec, beginning(spec), 0, 5, keep=(1, 4)))
    assert result.stretch is not None
    assert set(result.stretch.kept) == {"1", "4"}
    stepping = Stepping.of(spec)
    load_whole(stepping.model, stepping.stepper, by_single_steps(bench, spec, 2)[0])
    assert bench.objects.objects[result.stretch.kept["1"]] == flat.to_bytes(flat.snapshot(stepping.model.module))


def test_a_copy_stops_when_another_one_has_answered_or_the_run_is_cancelled(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marker that appears is seen 2 s later; until then none is looked for. The worker is of use afterwards."""
    spec, clock = CASES["adam"], [1000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    looked = list[str]()
    plain_get = bench.objects.get

    def get(key: str) -> bytes:
        looked.append(key)
        clock[0] += 0.5 if key == "done" else 0.0
        return plain_get(key)

    monkeypatch.setattr(bench.objects, "get", get)
    stretch = stretch_of(bench, spec, beginning(spec), 0, 6, done="done")
    assert answer(bench, stretch).status == "ok"
    assert "done" not in looked, "it took less than 2 s"
    bench.objects.put("done", b"")
    clock[0] += 2.0
    assert answer(bench, stretch).status == "cancelled"
    bench.objects.put("cancel", cancel_marker(3))
    clock[0] += 2.0
    assert answer(bench, replace(stretch, done=None), cancel="cancel").status == "cancelled"
    assert answer(bench, replace(stretch, done=None), cancel=None).buffer == by_single_steps(bench, spec, 6)[0]


def test_the_users_own_trouble_fails_the_stretch_alone(bench: Workbench) -> None:
    spec = stepped(
        "mlp", Recipe("SGD", {"lr": 0.1}, scheduler="OneCycleLR", scheduler_args={"max_lr": 1, "total_steps": 2})
    )
    result = answer(bench, stretch_of(bench, spec, beginning(spec), 0, 5))
    assert result.status == "failed"
    assert "OneCycleLR" in (result.error or "")
    other = stretch_of(bench, spec, beginning(CASES["double"]), 0, 1)
    assert answer(bench, other).status == "failed"


def test_a_spec_with_a_recipe_travels_and_one_without_keeps_its_bytes() -> None:
    spec = CASES["batch"]
    assert parse_spec(encode_spec(spec)) == spec
    assert b"recipe" not in encode_spec(replace_recipe(spec))
    assert build(replace_recipe(spec)).norms


def test_warming_makes_no_step(bench: Workbench) -> None:
    spec = CASES["adam"]
    stretch = stretch_of(bench, spec, beginning(spec), 0, 3)
    assert bench.ask(replace(asked(bench, stretch), op="warm")).results == ()
    assert answer(bench, stretch).buffer == by_single_steps(bench, spec, 3)[0]
