"""The life of jobs as a state machine: submit, begin, go on a little, kill, interrupt, cancel, resume, finish, in any
order. No state without a way out, no two processes on one run, and the weights are always those of undisturbed runs."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from gradmux.orchestrator.errors import Interrupted, RunCancelled
from gradmux.orchestrator.runs.cancelling import cancel
from gradmux.orchestrator.runs.index import statuses
from gradmux.orchestrator.runs.lock import RunBusy
from gradmux.orchestrator.runs.paths import RunPaths, all_runs
from gradmux.orchestrator.runs.status import State, status_of
from gradmux.orchestrator.runs.stopping import Stop
from tests.orchestrator.runs.bench import SmallJob, check_record
from tests.orchestrator.runs.disks import Died, DyingDisk

JOB = SmallJob("pipeline", {"n": 4, "s": 1}, workers=4, models=2, steps=4, every=1)
LIMIT_S = 30.0


class Process:
    """A life in a thread that takes a step only when it is told to: one event of the loop each."""

    def __init__(self, paths: RunPaths) -> None:
        self.stop, self.disk = Stop(look_s=0.0), DyingDisk()
        self.ending: BaseException | None = None
        self.weights: list[str] | None = None
        self._paths = paths
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._free = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()
        assert self._waits.acquire(timeout=LIMIT_S)

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def step(self, events: int = 1) -> None:
        """Goes on by so many events."""
        for _ in range(events):
            if self.ended:
                return
            self._go.release()
            assert self._waits.acquire(timeout=LIMIT_S)

    def kill(self) -> None:
        """As kill -9 does: not one more byte is written."""
        self.disk.die()
        self.finish()

    def finish(self) -> None:
        """Goes on to the end, whatever it is."""
        self._free = True
        self._go.release()
        self._thread.join(LIMIT_S)
        assert self.ended

    def _pause(self) -> None:
        if self._free:
            return
        self._waits.release()
        assert self._go.acquire(timeout=LIMIT_S)

    def _live(self) -> None:
        try:
            self.weights = JOB.live(self._paths, self.disk, stop=self.stop, between=self._pause)
        except (Died, Interrupted, RunCancelled) as error:
            self.ending = error
        finally:
            self._free = True
            self._waits.release()


@dataclass
class Run:
    """What the test knows of a run."""

    paths: RunPaths
    expected: State = State.CREATED
    process: Process | None = None
    lives: int = 0
    told: list[str] = field(default_factory=list)

    def note(self) -> None:
        """A process may have come to its end by itself."""
        if self.process is not None and self.process.ended:
            ending = self.process.ending
            kinds = {type(None): State.DONE, Interrupted: State.STOPPED, RunCancelled: State.CANCELLED}
            self.expected = kinds.get(type(ending), State.INTERRUPTED)
            self.process = None


class JobLife(RuleBasedStateMachine):
    """Every rule is something that a user, the machine or bad luck may do at any time."""

    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(mkdtemp(prefix="job-life-"))
        self.known: list[Run] = []

    @rule(target=runs)
    def submit(self) -> Run:
        run = Run(JOB.submit(self.home))
        self.known.append(run)
        return run

    @rule(run=runs)
    def resume(self, run: Run) -> None:
        if run.process is not None:
            with pytest.raises(RunBusy):
                JOB.live(run.paths)
        elif run.expected is not State.DONE:
            run.process, run.expected = Process(run.paths), State.RUNNING
            run.lives += 1
            run.note()

    @rule(run=runs, events=st.integers(1, 12))
    def go_on(self, run: Run, events: int) -> None:
        if run.process is not None:
            run.process.step(events)
            run.note()

    @rule(run=runs)
    def kill(self, run: Run) -> None:
        self._end(run, Process.kill)

    @rule(run=runs)
    def interrupt(self, run: Run) -> None:
        if run.process is not None:
            run.process.stop.ask("interrupted")
        self._end(run, Process.finish)

    @rule(run=runs)
    def finish(self, run: Run) -> None:
        self._end(run, Process.finish)

    @rule(run=runs)
    def cancel(self, run: Run) -> None:
        told = cancel(run.paths, lambda life: True, patience_s=0.0)
        if run.expected is State.DONE:
            assert told.state is State.DONE
        elif run.process is None:
            run.expected = State.CANCELLED
        else:
            assert told.state is State.CANCELLING
            run.process.finish()
            run.note()
            assert run.expected is State.CANCELLED

    def _end(self, run: Run, how: Callable[[Process], None]) -> None:
        if run.process is not None:
            how(run.process)
            run.note()

    @invariant()
    def every_run_is_in_the_state_that_it_should_be_in(self) -> None:
        assert [paths.run for paths in all_runs(self.home)] == [run.paths.run for run in self.known]
        for run in self.known:
            assert status_of(run.paths).state is run.expected
        assert [status.state for status in statuses(self.home)] == [run.expected for run in self.known]

    @invariant()
    def every_state_has_a_way_out(self) -> None:
        for run in self.known:
            status = status_of(run.paths)
            assert status.state.active or status.state.resumable or status.state is State.DONE

    def teardown(self) -> None:
        """Whatever happened: every run can be brought to the same end."""
        for run in self.known:
            self.finish(run)
            if run.expected is not State.DONE:
                JOB.live(run.paths)
            assert status_of(run.paths).state is State.DONE
            assert JOB.live(run.paths) == undisturbed()
            check_record(run.paths, JOB)
        shutil.rmtree(self.home)


_UNDISTURBED: list[list[str]] = []


def undisturbed() -> list[str]:
    """The weights that every run must end with."""
    if not _UNDISTURBED:
        with TemporaryDirectory() as home:
            _UNDISTURBED.append(JOB.live(JOB.submit(Path(home))))
    return _UNDISTURBED[0]


JobLife.TestCase.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestJobLife = JobLife.TestCase
