"""`make aws-test` without an account: its steps in order, and that nothing is left whatever fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts.aws_test import JOB, LIMIT_USD, Ran, Trial
from scripts.peers import KNOWN, judged

COST = {
    "memory_mb": 2048,
    "prices": {"gb_s": 0.0000166667, "million_requests": 0.2},
    "total": {"usd": 0.003365, "billed_s": 100.0, "beside_s": 0.0, "invocations": 160, "beside": 0},
}
NAME = "gradmux-test-1"


class Account:
    """Answers the commands as an account would; one of them may fail."""

    def __init__(self, fails: str = "", left: int = 0, cost: dict[str, Any] | None = None) -> None:
        self.fails, self.left, self.cost = fails, left, cost or COST
        self.asked: list[str] = []

    def __call__(self, arguments: Sequence[str], folder: Path) -> Ran:
        command = arguments[0]
        self.asked.append(command)
        answers: dict[str, Any] = {
            "deploy": {"function": f"{NAME}-worker", "bucket": f"{NAME}-1-us-east-1"},
            "submit": {"run": "aws-test-1"},
            "cost": self.cost,
            "destroy": {"steps": ["x"] * self.left, "leaves": []},
        }
        return Ran(1 if command == self.fails else 0, json.dumps(answers.get(command, {})))


def tried(account: Account, folder: Path) -> tuple[int, list[str]]:
    said: list[str] = []
    return Trial(account, folder, NAME, said.append).run(), said


def test_every_step_in_order(tmp_path: Path) -> None:
    account = Account()
    code, said = tried(account, tmp_path)
    assert (code, said[-1]) == (0, "aws-test: nothing is left")
    assert account.asked == ["deploy", "conform", "doctor", "submit", "cost", "destroy", "destroy"]


@pytest.mark.parametrize("fails", ["deploy", "conform", "doctor", "submit", "cost"])
def test_whatever_fails_it_is_all_destroyed(tmp_path: Path, fails: str) -> None:
    account = Account(fails)
    code, said = tried(account, tmp_path)
    assert code == 1
    assert account.asked[-2:] == ["destroy", "destroy"]
    assert f"gradmux {fails}" in said[0]


def test_what_is_left_is_told(tmp_path: Path) -> None:
    code, said = tried(Account(left=1), tmp_path)
    assert code == 1
    assert f"gradmux destroy --name {NAME} --delete-data" in said[-1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"usd": 0.0068}, "its lines come to"), ({"usd": 3.3334, "billed_s": 100_000.0}, "were promised")],
)
def test_a_bill_that_is_not_as_it_should_be(tmp_path: Path, changes: dict[str, float], told: str) -> None:
    code, said = tried(Account(cost={**COST, "total": {**COST["total"], **changes}}), tmp_path)  # type: ignore[dict-item]
    assert code == 1
    assert any(told in line for line in said)


def test_its_job_is_valid_and_within_the_promise(tmp_path: Path) -> None:
    from gradmux.orchestrator.job_file import load_job

    job = tmp_path / "job.toml"
    job.write_text(JOB.format(function="f", bucket="b"))
    cluster = load_job(job).cluster
    assert cluster.max_cost_usd is not None
    assert cluster.max_cost_usd < LIMIT_USD


def test_a_peer_is_judged_by_what_is_known_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    known = sorted(KNOWN["s3rver"])
    assert judged("s3rver", {"checks": [], "differs": known}) == 0
    assert judged("s3rver", {"checks": [], "differs": [*known, "s3.list"]}) == 1
    assert "s3.list differs" in capsys.readouterr().out
    assert judged("s3rver", {"checks": [], "differs": known[1:]}) == 1
