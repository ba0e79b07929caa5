"""`gradmux demo --quick`: six schemes, every number measured, every gradient exact, every process gone."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from cli.demo.contest import QUICK
from tests.cli.conftest import Gradmux
from tests.cli.processes import interrupt, running, wait_until


@pytest.fixture
def document(gradmux: Gradmux) -> dict:  # type: ignore[type-arg]
    ran = gradmux("demo", "--quick", "--json")
    assert ran.code == 0, ran.err
    return ran.document  # type: ignore[no-any-return]


def test_six_schemes_train_four_models_exactly(document: dict) -> None:  # type: ignore[type-arg]
    schemes = document["schemes"]
    assert [scheme["scheme"] for scheme in schemes] == ["uncoded", "gc", "gc", "sr-sgc", "m-sgc", "pipeline"]
    for scheme in schemes:
        assert scheme["weight_difference"] < 1e-5
        assert scheme["decode"]["max_residual"] < 1e-9
        assert scheme["wall_s"] > 0
        assert scheme["cost"]["billed_s"] > 0
        assert scheme["time_ratio"] == pytest.approx(scheme["wall_s"] / schemes[0]["wall_s"])
        assert len(scheme["models"]) == 4
        for model in scheme["models"]:
            assert model["steps"] == QUICK.steps
            assert load_file(model["checkpoint"])
        assert Path(scheme["record"]).exists()
    # The same batches, decoded exactly: every scheme ends with the same models.
    assert len({tuple(model["eval"]["accuracy"] for model in scheme["models"]) for scheme in schemes}) == 1
    assert psutil.Process().children(recursive=True) == []


def test_the_table_has_a_row_for_each_scheme_and_says_where_things_lie(gradmux: Gradmux, home: Path) -> None:
    ran = gradmux("demo", "--quick")
    assert ran.code == 0, ran.err
    rows = ("uncoded", "gc, the papers' rule", "gc, earliest decode", "sr-sgc", "m-sgc", "B=1 W=2 lambda=2", "n=2 s=1")
    for label in rows:
        assert label in ran.out
    assert str(home / "runs") in ran.out


def test_ctrl_c_in_the_middle_leaves_no_process(home: Path) -> None:
    record = home / "runs" / "demo-uncoded-1" / "record.jsonl"
    with running(["demo", "--home", str(home)]) as process:
        wait_until(lambda: record.exists() and record.read_text().count("\n") > 1)
        err = interrupt(process, signal.SIGINT, 5)
    assert err.splitlines()[-1] == "gradmux: interrupted"
