"""`gradmux demo --quick`: six schemes, every number measured, every gradient exact, every process gone."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from safetensors.torch import load_file

from gradmux.cli import demo_tables as tables
from gradmux.orchestrator.demo.contest import QUICK, Contest, Contestant, Entry, contestants
from gradmux.orchestrator.results import ModelResult, RunResult
from gradmux.orchestrator.training.trial.clean import clean_process
from tests.cli.conftest import Gradmux
from tests.commands import warm_emulator
from tests.commands.command_line import wait_until


def test_six_schemes_train_four_models_exactly(gradmux: Gradmux) -> None:
    clean_process()  # in which models are tried: it lasts as long as the process that runs commands
    warm_emulator.begin()
    before = set(psutil.Process().children(recursive=True))
    ran = gradmux("demo", "--quick", "--json")
    assert ran.code == 0, ran.err
    wait_until(lambda: set(psutil.Process().children(recursive=True)) <= before)
    schemes = ran.document["schemes"]
    assert [scheme["scheme"] for scheme in schemes] == ["uncoded", "gc", "gc", "sr-sgc", "m-sgc", "pipeline"]
    for scheme in schemes:
        # Adam's first steps divide a gradient by its own size, so where that is near zero its rounding counts in full:
        # 3.6e-6 on one processor, 1.1e-5 on another. A chunk that is missing or counted twice gives 1e-2 and more.
        assert scheme["weight_difference"] < 5e-5
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


def entry(contestant: Contestant, wall_s: float, home: Path) -> Entry:
    """Made up, but for its name."""
    folder = home / "runs" / f"demo-{contestant.scheme['name']}-1"
    model = ModelResult("mlp-32", 3, 0.5, {"loss": 0.4, "accuracy": 0.875}, folder / "models" / "mlp-32.safetensors")
    result = RunResult(
        run=folder.name,
        state="done",
        scheme=contestant.scheme["name"],
        params={},
        workers=8,
        load=0.125,
        rounds=12,
        wall_s=wall_s,
        billed_s=40.0,
        invocations=96,
        models=(model,),
        max_residual=1e-15,
        max_amplification=1.5,
        record=folder / "record.jsonl",
    )
    return Entry(contestant, result, weight_difference=2e-7)


def test_the_table_has_a_row_for_each_scheme_and_says_where_things_lie(home: Path) -> None:
    entries = [entry(contestant, 8.0 / (1 + place), home) for place, contestant in enumerate(contestants(QUICK))]
    text = StringIO()
    tables.tell(Contest(QUICK, entries), Console(file=text, width=200))
    rows = {line.split("  ")[0].strip(): line.split() for line in text.getvalue().splitlines() if line.strip()}
    assert {"uncoded", "gc, the papers' rule", "gc, earliest decode", "sr-sgc", "m-sgc", "pipeline"} <= rows.keys()
    assert rows["uncoded"] == ["uncoded", "-", "0.1250", "8.00", "1.00", "40.0", "87.5"]
    assert rows["m-sgc"] == ["m-sgc", "B=1", "W=2", "lambda=2", "0.1250", "1.60", "0.20", "40.0", "87.5"]
    assert rows["pipeline"][1:3] == ["n=2", "s=1"]
    assert rows["runs"] == ["runs", str(home / "runs")]
    assert "by at most 2.0e-07" in text.getvalue()
