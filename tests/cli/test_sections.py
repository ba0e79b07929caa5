"""All that travels with a gradient comes back whole over HTTP, too: at once, in early messages, or by way of the store.

The model of `tests/exactness/keeping.py`, whose results have every section, under every scheme, with stragglers, whose
answers come after their round has closed, equal to the plain loop. `SECTIONS=1` tries every scheme on every way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradmux.infra.local import DelayPlan, Emulator
from gradmux.orchestrator.backends import open_place
from gradmux.orchestrator.delays import generate
from gradmux.orchestrator.record import Header, read_record
from gradmux.orchestrator.results import Trained
from gradmux.orchestrator.runs.keep import keep_job
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.runs.train import run_job
from scripts.exactness.here import prepared_of
from tests.cli.conftest import ON_AWS
from tests.exactness.keeping import AGREE, EXACT, MOST_MODELS, STEPS, assert_alike, assert_metrics, case, plain, under

WAYS: Mapping[str, Mapping[str, Any]] = {
    "request": {"aggregate": "client"},
    "event": {"aggregate": "client", "invoke": "event"},
    "event, cloud": {"aggregate": "cloud", "invoke": "event"},
}
SCHEMES = [(scheme, params) for scheme, params, _ in EXACT]
LIMIT = AGREE["float32"]


@pytest.fixture
def slow(account: Emulator) -> Emulator:
    """Its workers are late now and then."""
    delays_s = generate("shifted-exponential", rounds=10, workers=4, seed=0).delays_s
    account.set_delays(DelayPlan.of(delays_s.tolist(), time_scale=0.02))
    return account


def trained(prepared: Prepared, way: str, folder: Path) -> Trained:
    """The job in the account, its results on this way."""
    cluster = prepared.config.cluster.model_copy(update={**ON_AWS, **WAYS[way]})
    made = replace(prepared, config=prepared.config.model_copy(update={"cluster": cluster}))
    paths = keep_job(made, folder, folder)
    with open_place(made.config) as place:
        return run_job(made, place, paths)


def assert_plain(prepared: Prepared, found: Trained) -> None:
    """Weights, every buffer, and the loss of every step."""
    expected = plain("float32")
    lines = [line for line in read_record(found.run.record) if not isinstance(line, Header)]
    decoded = [each for line in lines for each in line.decoded]
    for index, plan in enumerate(prepared.models):
        assert_alike(found[plan.name], expected[plan.name], LIMIT)
        told = sorted((each.step, each) for each in decoded if each.model == index)
        losses = [loss for _, each in told for loss in (*(earlier[0] for earlier in each.earlier), each.loss)]
        for step, each in told:
            if each.steps == 1:
                assert_metrics(each, prepared.order.batch(step))
            else:
                weighted = [figures["weighted"] for figures in each.metrics]
                assert weighted == pytest.approx([*(earlier[0] for earlier in each.earlier), each.loss], rel=1e-6)
        assert losses == pytest.approx(expected.losses[plan.name], rel=LIMIT)
    assert found.run.buffers_stayed == 0


def ways() -> Iterator[Any]:
    """Every scheme, on every way with SECTIONS=1, else on one after the other; in process each is summed both ways."""
    whole = os.environ.get("SECTIONS", "") not in ("", "0")
    for index, (scheme, params) in enumerate(SCHEMES):
        label = " ".join([scheme, *(f"{key}={value}" for key, value in params.items())])
        for way in WAYS if whole else [list(WAYS)[index % len(WAYS)]]:
            yield pytest.param(scheme, params, way, id=f"{label}-{way}")


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(("scheme", "params", "way"), list(ways()))
def test_every_section_comes_back_on_every_way(
    scheme: str, params: Mapping[str, Any], way: str, tmp_path: Path
) -> None:
    prepared = under("float32", scheme, params, 4)
    assert_plain(prepared, trained(prepared, way, tmp_path))


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("way", ["request", "event"])
@pytest.mark.parametrize("scheme", [{"name": "stretch", "steps": 2}, {"name": "auto"}], ids=lambda each: each["name"])
def test_states_and_chosen_schemes_have_them_too(scheme: Mapping[str, Any], way: str, tmp_path: Path) -> None:
    prepared = prepared_of(replace(case(), scheme=scheme), STEPS, MOST_MODELS)
    assert_plain(prepared, trained(prepared, way, tmp_path))
