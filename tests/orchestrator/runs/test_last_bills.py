"""Results are written as soon as the models are done; calls that are only billed any more are waited for after that."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from gradmux.cli.options import Settings
from gradmux.cli.results import tell_result
from gradmux.orchestrator.errors import Interrupted
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.record import EndLine, Header, MemoryRecord, encode_line
from gradmux.orchestrator.results import ModelResult, RunResult, Trained
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.runs.finish import with_bill
from gradmux.orchestrator.runs.history import DONE, History
from gradmux.orchestrator.runs.life import living
from gradmux.orchestrator.runs.play import play
from gradmux.orchestrator.runs.status import State, status_of
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context
from gradmux.orchestrator.simulate import NoTrainer
from tests.orchestrator.runs.bench import SmallJob

STOPPED_S, ROUNDS, WORKERS = 500.0, 3, 4


class Saves:
    """A keeper as `play` sees it."""

    def save(self) -> None:
        """Nothing to save."""


class Played:
    """A run whose last worker answers no call before a long time has passed, on a virtual clock."""

    def __init__(self, late_s: float, error: BaseException | None = None, record: MemoryRecord | None = None) -> None:
        plan = JobPlan(1, ROUNDS)
        scheme = build_scheme("gc", {"stragglers": 1}, Context(WORKERS, plan.jobs, 1, seed=0, concurrency=64))
        delays = np.ones((ROUNDS, WORKERS))
        delays[:, -1] = STOPPED_S
        self.fleet = ProfileFleet(DelayTable(delays, WORKERS), LoadModel())
        self.record, self.recalled = MemoryRecord() if record is None else record, 0
        self.record.write(Header("r", "gc", {}, WORKERS, 1, ROUNDS, 0, {}, {}, extra={DONE: (0,)}))
        rounds = Rounds(scheme, plan, Earliest(), Limits())
        self.loop = Loop(plan=plan, rounds=rounds, fleet=self.fleet, trainer=NoTrainer(), recorder=self.record)
        self.error, self.done_s, self.seen = error, -1.0, History()
        play(self.loop, cast(Any, Saves()), drain_s=1e9, recall=self.recall, done=self.done, late_s=late_s)

    def recall(self) -> None:
        self.recalled += 1

    def done(self, rest: EndLine) -> None:
        self.done_s = self.fleet.now()
        for line in (*self.record.lines, rest):
            self.seen.take(line)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("late_s", [1.0, 2.0, 1e9])
def test_results_come_before_the_last_bills_whose_wait_is_bounded(late_s: float) -> None:
    played = Played(late_s)
    assert played.done_s < STOPPED_S
    assert played.seen.steps == [ROUNDS], "all that the result is made of was there"
    assert played.fleet.now() == pytest.approx(min(played.done_s + late_s, STOPPED_S + ROUNDS), abs=ROUNDS)
    whole = History()
    for line in played.record.lines:
        whole.take(line)
    assert whole.end is not None
    assert (whole.end.state, whole.steps, whole.in_flight) == ("done", [ROUNDS], 0 if late_s > STOPPED_S else ROUNDS)
    assert whole.billed_s >= played.seen.billed_s
    assert played.recalled == (late_s < STOPPED_S), "calls that are still queued need not compute"


@pytest.mark.parametrize(
    ("error", "state"),
    [(OSError("no space left"), "failed"), (KeyboardInterrupt(), "stopped"), (Interrupted(), "stopped")],
)
def test_a_run_whose_results_cannot_be_written_says_so_in_its_record(error: BaseException, state: str) -> None:
    record = MemoryRecord()
    with pytest.raises(type(error)):
        Played(2.0, error, record)
    end = record.lines[-1]
    assert isinstance(end, EndLine)
    assert (end.state, end.reason) == (state, f"{type(error).__name__}: {error}")
    whole = History()
    for line in record.lines:
        whole.take(line)
    assert whole.steps == [ROUNDS]


def test_what_has_not_come_back_is_bounded_in_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths, played = SmallJob().submit(tmp_path), Played(1.0)
    paths.record.write_bytes(b"".join(encode_line(line) + b"\n" for line in played.record.lines))
    model = ModelResult("m", ROUNDS, 0.1, {}, tmp_path / "m")
    run = RunResult("r", "done", "gc", {}, WORKERS, 0.5, ROUNDS, 1.0, 0.0, 0, (model,), 0.0, 1.0, paths.record)
    told = with_bill(Trained(run, {}), paths, timeout_s=60.0).run.to_dict()
    assert told == json.loads(paths.result.read_text())
    assert (told["cost"]["not_back"], told["cost"]["not_back_s_at_most"]) == (ROUNDS, 60.0 * ROUNDS)
    assert told["cost"]["invocations"] == WORKERS * ROUNDS
    tell_result(Settings(), told)
    assert "3 invocations, which are not in the bill: at most 180.0 s more" in " ".join(capsys.readouterr().out.split())


def test_a_run_that_waits_for_its_last_bills_is_done(tmp_path: Path) -> None:
    paths = SmallJob().submit(tmp_path)
    paths.result.write_text("{}")
    os.utime(paths.result, (1.0, 1.0))
    with living(paths):
        assert status_of(paths).state is State.RUNNING, "a result of an earlier life says nothing"
        os.utime(paths.result)
        os.utime(paths.life, (1.0, 1.0))
        assert status_of(paths).state is State.DONE
    assert status_of(paths).state is State.DONE
