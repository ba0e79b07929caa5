"""Stretches over real workers: the bits of single steps, whatever is killed, late or resumed under another K."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gradmux.infra.local import Emulator
from gradmux.infra.local.backend import emulator_errors, local_place, start_emulator
from gradmux.orchestrator.errors import Diverged, Interrupted, TaskFailed
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.record import read_record
from gradmux.orchestrator.runs.cost import cost_of
from gradmux.orchestrator.runs.history import read_history
from gradmux.orchestrator.runs.keep import read_job
from gradmux.orchestrator.runs.replay import replay
from tests.cli.going_on import Small, hurt, model, saved
from tests.cli.test_going_on import TREE

STEPS = 7
PATIENT = {"timeout_s": 30.0}
MODELS = [
    model("a", optimizer={"name": "AdamW", "lr": 0.02}, scheduler={"name": "CosineAnnealingLR", "T_max": 9}, ema=0.9),
    model("b", optimizer={"name": "SGD", "lr": 0.1, "momentum": 0.9}),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[Emulator]:
    tree = {**TREE, "cluster": {**TREE["cluster"], **PATIENT}, "scheme": {"name": "stretch", "K": 2}}
    with emulator_errors(), start_emulator(parse_job(tree, "test")) as emulator:
        yield emulator


@pytest.fixture
def small(home: Any, shared: Emulator) -> Small:
    return Small(home, local_place(shared))


@pytest.mark.parametrize("scheme", [{"copies": 1, "K": 3}, {"copies": 2, "K": 7}, {"copies": 2, "K": 1}], ids=str)
def test_stretches_give_the_bits_of_single_steps(small: Small, scheme: dict[str, Any]) -> None:
    single = small.submit(
        small.prepared({"name": "pipeline", "n": 1, "s": 0}, MODELS, training={"steps": STEPS}, cluster=PATIENT)
    )
    small.run(single)
    job = small.prepared({"name": "stretch", **scheme}, MODELS, training={"steps": STEPS}, cluster=PATIENT)
    run = small.submit(job)
    small.run(run)
    assert saved(run) == saved(single)


def test_a_resumed_run_goes_on_under_another_k(small: Small) -> None:
    """Stopped after its second job, and gone on with in stretches of another size."""
    wide = [*MODELS, model("wide", "wide", optimizer={"name": "Adam", "lr": 0.01})]
    job = small.prepared({"name": "stretch", "copies": 2, "K": 4}, wide, training={"steps": STEPS}, cluster=PATIENT)
    through, stopped = small.submit(job), small.submit(job)
    small.run(through)
    with pytest.raises(Interrupted):
        small.run(stopped, stop_after=2)
    tree = json.loads(stopped.job.read_bytes())
    tree["scheme"]["K"] = 3
    stopped.job.write_text(json.dumps(tree))
    small.run(stopped)
    assert saved(stopped) == saved(through)
    history = read_history(stopped.record)
    assert (history.steps, history.lives) == ([STEPS] * 3, 2)
    lines = list(read_record(stopped.record))
    assert replay(read_job(stopped), lines).difference is None
    told = cost_of(lines, 1024).models
    assert set(told) == {"a", "b", "wide"}
    assert all(told.values()), "each model has its own bill"


def test_a_model_that_diverges_ends_with_the_state_before(small: Small) -> None:
    """Its steps until then are in the record, as they are with single steps."""
    wild = [MODELS[0], model("wild", optimizer={"name": "SGD", "lr": 1e38})]
    steps = []
    for scheme in ({"name": "stretch", "K": 5}, {"name": "pipeline", "n": 1, "s": 0}):
        run = small.submit(small.prepared(scheme, wild, training={"steps": 9}, cluster=PATIENT))
        with pytest.raises((Diverged, TaskFailed), match="wild"):
            small.run(run)
        steps.append(read_history(run.record).steps[1])
    assert steps[0] == steps[1] > 0


def test_faults_do_not_change_a_bit(small: Small, shared: Emulator) -> None:
    job = small.prepared({"name": "stretch", "copies": 2, "K": 3}, MODELS, training={"steps": STEPS}, cluster=PATIENT)
    through, hit = small.submit(job), small.submit(job)
    small.run(through)
    with hurt(shared, crash=0.2, throttle=0.1, _503=0.1):
        small.run(hit)
    assert saved(hit) == saved(through)
