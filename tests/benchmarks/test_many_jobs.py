"""Jobs at once on one emulator, with a limit below their sum: each as correct as alone."""

from __future__ import annotations

from pathlib import Path

from benchmarks.many_jobs import run_many
from gradmux.orchestrator.runs.status import State
from tests.commands.command_line import submit


def test_two_jobs_share_a_limit_that_is_too_small_for_both(tmp_path: Path) -> None:
    outcome = run_many(tmp_path, jobs=2, workers=4, concurrency=5, steps=4, submit=submit)
    assert [status.state for status in outcome.statuses] == [State.DONE, State.DONE]
    assert outcome.equal == 2
    assert outcome.peak <= 5
    assert outcome.refused == 0, "the ledger keeps them below the limit, not the emulator's refusals"
