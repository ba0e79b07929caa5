"""`cluster.max_cost_usd` stops a run resumably, at the user's own prices; a larger budget brings it to the same end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradmux.infra.local import Emulator
from gradmux.orchestrator.record import EndLine, read_record
from tests.cli.conftest import BUCKET, Gradmux
from tests.cli.test_submit import JOB, MODELS

BUDGET, WORKERS = 40, 6
QUICKLY = ["--set", 'scheme={name="gc", s=1}', "--set", "training={steps=12, checkpoint_every=2}"]


@pytest.fixture
def job(tmp_path: Path, home: Path, account: Emulator) -> Path:
    """By the user's prices every call costs a dollar and time nothing, so that where a budget ends does not depend on
    speed; by the list's, no run here would come near one."""
    home.mkdir()
    (home / "prices.toml").write_text('date = "tomorrow"\nmillion_requests = 1000000\ngb_s = 0\n')
    (tmp_path / "small_models.py").write_text(MODELS)
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace("[cluster]", f'[cluster]\nbackend = "aws"\nbucket = "{BUCKET}"'))
    return path


def weights(document: Any) -> dict[str, bytes]:
    return {model["name"]: Path(model["checkpoint"]).read_bytes() for model in document["models"]}


def test_a_run_stops_at_its_budget_and_goes_on_with_a_larger_one(gradmux: Gradmux, job: Path, home: Path) -> None:
    whole = gradmux("submit", job, *QUICKLY, "--json")
    assert whole.code == 0, whole.err
    in_all = gradmux("cost", "small-1", "--json").document["total"]
    assert in_all["usd"] == in_all["invocations"] + in_all["beside"] > 3 * BUDGET
    assert in_all["beside"] == WORKERS, "each was started before the first round"

    ran = gradmux("submit", job, "-q", *QUICKLY, "--set", f"cluster.max_cost_usd={BUDGET}")
    assert ran.code == 5
    assert len(ran.err.splitlines()) == 1
    assert f"may cost ${BUDGET} (cluster.max_cost_usd)" in ran.err
    assert "gradmux resume small-2 --max-cost-usd USD" in ran.err
    record = home / "runs" / "small-2" / "record.jsonl"
    *_, last = read_record(record)
    assert isinstance(last, EndLine)
    assert (last.state, last.reason.startswith("BudgetSpent: the run has cost $4")) == ("stopped", True)
    cost = gradmux("cost", "small-2", "--json").document
    assert cost["prices"]["date"] == "tomorrow"
    assert BUDGET <= cost["total"]["usd"] < in_all["usd"] / 2
    status = gradmux("status", "small-2", "--json").document
    assert (status["state"], status["resumable"]) == ("stopped", True)
    assert "BudgetSpent" in status["reason"]

    again = gradmux("resume", "small-2", "-q")
    assert (again.code, again.err.count("may cost $40")) == (5, 1)
    assert gradmux("cost", "small-2", "--json").document["total"] == cost["total"], "what is spent calls no worker"

    resumed = gradmux("resume", "small-2", "--max-cost-usd", "1000", "--json")
    assert resumed.code == 0, resumed.err
    assert weights(resumed.document) == weights(whole.document)


def test_sums_in_the_cloud_are_in_the_bill(gradmux: Gradmux, job: Path) -> None:
    steps = ("--set", "training.steps=3", "--set", "cluster.aggregate=cloud")
    ran = gradmux("submit", job, "--set", 'scheme={name="gc", s=1}', *steps, "--json")
    assert ran.code == 0, ran.err
    total = gradmux("cost", "small-1", "--json").document["total"]
    assert total["beside"] == WORKERS + 2 * 3, "one call sums one gradient of so small a model"
    assert total["beside_s"] >= total["beside"] / 1000, "a millisecond each, at least"
    assert (ran.document["cost"]["beside"], ran.document["cost"]["beside_s"]) == (total["beside"], total["beside_s"])
    assert "started workers and summed gradients" in gradmux("cost", "small-1").out


def test_a_price_table_that_cannot_be_read_is_told_before_anybody_is_called(
    gradmux: Gradmux, job: Path, home: Path
) -> None:
    (home / "prices.toml").write_text("gb_s = 'cheap'")
    ran = gradmux("submit", job, "-q", *QUICKLY, "--set", "cluster.max_cost_usd=1")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert "prices.toml: gb_s must be a number" in ran.err
    assert not (home / "runs").exists()
