"""THE loop: the only place where scheme, fleet and trainer meet. Simulation, emulator and AWS all run it.

It does what `rounds.py` decides: sends invocations, takes arrivals, decodes, steps the optimizer, writes the record. It
knows no scheme by name, no clock but the fleet's, and never looks into a result. Read next: `rounds.py`, `record.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from gradmux.orchestrator import record as rec
from gradmux.orchestrator.errors import GradmuxError, RunStopped, SchemeFault
from gradmux.orchestrator.held import Held
from gradmux.orchestrator.jobs import Plan
from gradmux.orchestrator.ports import Arrival, Fleet, StepResult, Trainer
from gradmux.orchestrator.rounds import Close, Decode, Rounds, Send
from gradmux.orchestrator.schemes.scheme import Decoding, Key


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run did, in the fleet's clock."""

    rounds: int
    wall_s: float
    """from the first dispatch to the last applied gradient"""
    billed_s: float
    """of all invocations that have come back, late and redundant ones included"""
    invocations: int
    in_flight: int
    """invocations that had not come back"""
    beside: rec.Beside
    """calls that are not in these figures, as far as they are recorded"""
    max_residual: float
    max_amplification: float


@dataclass(slots=True)
class _Since:
    """What happened since the last line of the record."""

    begun: list[rec.Begun] = field(default_factory=list)
    sent: list[rec.Sent] = field(default_factory=list)
    arrivals: list[rec.Heard] = field(default_factory=list)
    decoded: list[rec.Decoded] = field(default_factory=list)


class Loop:
    """One run: `run()` plays it to the end, `drain()` then waits for answers that only cost money."""

    def __init__(
        self,
        *,
        plan: Plan,
        rounds: Rounds,
        fleet: Fleet,
        trainer: Trainer,
        recorder: rec.Recorder,
        asked: Callable[[], Sequence[tuple[str, float]]] = tuple,
        beside: Callable[[], rec.Beside] = rec.Beside,
        cpus: Callable[[], Sequence[str]] = tuple,
        on_step: Callable[[rec.Decoded], None] | None = None,
        should_stop: Callable[[], None] | None = None,
        poll_s: float | None = None,
        held: Held | None = None,
    ) -> None:
        """`asked` hands over (and forgets) what a lazy scheme asked about weights, `beside` what was called besides the
        rounds; `cpus` names the processors that answered; `on_step` is called after each job;
        `should_stop` is called between events, at least every `poll_s`, and raises to end the run; `held` keeps
        results until their job decodes, or adds them as they come."""
        self._scheme, self._plan, self._rounds, self._fleet, self._trainer = rounds.scheme, plan, rounds, fleet, trainer
        self._recorder, self._asked, self._on_step = recorder, asked, on_step
        self._take_beside, self._beside, self._cpus = beside, rec.Beside(), cpus
        self._should_stop, self._poll_s = should_stop, poll_s
        self._held = Held() if held is None else held
        self._held.serve(rounds.scheme)
        self._published: set[int] = set()
        self._applied: list[int] = []
        """jobs whose weights are still held for workers"""
        self._since = _Since()
        self._line: rec.RoundLine | None = None
        """the line of a closed round, until the jobs that were due in it are applied"""
        self._loads: dict[int, float] = {}
        self._last_tick_s = -math.inf
        self._start_s: float | None = None
        self._end_s = 0.0
        self._billed_s = 0.0
        self._invocations = self._rounds_closed = 0
        self._max_residual = self._max_amplification = 0.0

    def run(self) -> RunSummary:
        """Plays every round. Raises what `Rounds.next_action` raises; the record then ends with the reason."""
        try:
            while True:
                # 1. Do all that can be done with what is known.
                while (action := self._rounds.next_action()) is not None:
                    self._perform(action)
                self._flush()
                if self._rounds.finished:
                    break
                # 2. Wait for the next arrival, or for the instant at which a decision changes without one.
                if self._should_stop is not None:
                    self._should_stop()
                if not self._rounds.finished:  # it may have been shortened just now
                    self._wait()
        except BaseException as error:
            if isinstance(error, SchemeFault) and self._start_s is None:
                error.before_any_worker()
            self._finish(_state_after(error), f"{type(error).__name__}: {error}")
            raise
        self._end_s = self._fleet.now()
        return self.summary()

    def drain(self, patience_s: float, state: str = "done", reason: str = "") -> RunSummary:
        """After `run`: takes what is in flight, for `patience_s` at most, to make the bill whole; ends the record.

        Who asks to stop now has only asked not to wait.
        """
        until_s = self._fleet.now() + patience_s
        while self._rounds.in_flight and self._fleet.now() < until_s and not self._asked_to_stop():
            step_s = until_s if self._poll_s is None else min(until_s, self._fleet.now() + self._poll_s)
            arrival = self._fleet.next(step_s)
            if arrival is not None:
                self._take(arrival)
        self._finish(state, reason)
        return self.summary()

    def ending(self) -> rec.EndLine:
        """What would end the record of a run that is done now; nothing is written, and what comes later not in it."""
        since = self._since
        return rec.EndLine(
            state="done",
            at_s=self._fleet.now(),
            arrivals=tuple(since.arrivals),
            decoded=tuple(since.decoded),
            sent=tuple(since.sent),
            cpus=tuple(self._cpus()),
            begun=tuple(since.begun),
        )

    def fail(self, error: BaseException) -> None:
        """Ends the record of a run that could not write its results."""
        self._finish(_state_after(error), f"{type(error).__name__}: {error}")

    def shorten(self) -> None:
        """`run` ends as soon as all models have done the furthest step that any has begun, if the scheme allows it."""
        self._plan = self._rounds.shorten()

    @property
    def steps(self) -> int:
        """Steps of each model, counted over the whole run, that are done when `run` has returned."""
        return self._plan.steps

    def summary(self) -> RunSummary:
        """The run until now."""
        return RunSummary(
            rounds=self._rounds_closed,
            wall_s=self._end_s - (self._start_s or 0.0),
            billed_s=self._billed_s,
            invocations=self._invocations,
            in_flight=self._rounds.in_flight,
            beside=self._beside,
            max_residual=self._max_residual,
            max_amplification=self._max_amplification,
        )

    @property
    def results_held(self) -> int:
        """How many results wait for their decode."""
        return len(self._held)

    # --- events ----------------------------------------------------------------------------------

    def _wait(self) -> None:
        wake = self._rounds.wake_at()
        until = wake
        if self._poll_s is not None:
            poll = self._fleet.now() + self._poll_s
            until = poll if wake is None else min(wake, poll)
        arrival = self._fleet.next(until)
        if arrival is not None:
            self._take(arrival)
        elif wake is not None and until == wake:
            self._last_tick_s = wake
            self._rounds.tick(wake)

    def _take(self, arrival: Arrival) -> None:
        if not self._rounds.knows(arrival.round):
            return
        if arrival.at_s <= self._last_tick_s:
            # It was under way while the clock was read: after the tick in the run, so after it in every replay.
            arrival = replace(arrival, at_s=math.nextafter(self._last_tick_s, math.inf))
        self._since.arrivals.append(rec.heard(arrival))
        self._billed_s += arrival.billed_s
        if self._rounds.arrived(arrival):
            for slot, result in arrival.results.items():
                self._held.put(Key(arrival.round, arrival.worker, slot), result)

    def _asked_to_stop(self) -> bool:
        try:
            if self._should_stop is not None:
                self._should_stop()
        except RunStopped:
            return True
        return False

    # --- actions ---------------------------------------------------------------------------------

    def _perform(self, action: Send | Decode | Close) -> None:
        match action:
            case Send():
                self._send(action)
            case Decode():
                self._decode(action)
            case Close():
                self._close(action)

    def _send(self, action: Send) -> None:
        calls = action.invocations
        for job in sorted({task.job for call in calls for task in call.slots if task is not None}):
            if job not in self._published:
                self._published.add(job)
                self._since.begun.append(rec.begun(job, self._plan.job(job)))
                self._trainer.publish(job)
        at_s = self._fleet.invoke(calls)
        self._start_s = at_s if self._start_s is None else self._start_s
        self._invocations += len(calls)
        for call in calls:
            self._loads[call.round] = max(self._loads.get(call.round, 0.0), call.load)
        self._since.sent.extend(rec.sent(calls, at_s))
        self._rounds.sent(calls, at_s)

    def _decode(self, action: Decode) -> None:
        decoding = self._scheme.estimated(action.job) if action.estimate else self._scheme.decode(action.job)
        told = self._trainer.step(action.job, self._held.terms(action.job, decoding))
        if told.steps is not None:
            self._rounds.cut(action.job, told.steps)
        self._rounds.stepped(action.job)
        self._applied.append(action.job)
        self._held.drop()
        self._max_residual = max(self._max_residual, decoding.residual)
        self._max_amplification = max(self._max_amplification, decoding.amplification)
        line = self._decoded(action.job, decoding, told)
        self._since.decoded.append(line)
        if self._on_step is not None:
            self._on_step(line)

    def _decoded(self, job: int, decoding: Decoding, told: Any) -> rec.Decoded:
        return rec.Decoded(
            job=job,
            model=self._plan.job(job).model,
            step=self._plan.job(job).first,
            steps=self._plan.job(job).steps,
            at_s=self._fleet.now(),
            results=len(decoding.weights),
            weights_crc=rec.weights_crc(decoding),
            residual=decoding.residual,
            amplification=decoding.amplification,
            missing=decoding.missing,
            loss=told.loss,
            count=told.count,
            correct=told.correct,
            gradient_norm=told.gradient_norm,
            metrics=_metrics(told),
            buffers_stayed=told.buffers_stayed and decoding.missing > 0.0,
            earlier=tuple((each.loss, each.count, each.correct, each.gradient_norm) for each in told.earlier),
        )

    def _close(self, close: Close) -> None:
        self._flush()
        self._retire(close)
        self._rounds_closed += 1
        since, self._since = self._since, _Since(decoded=self._since.decoded)
        self._line = rec.RoundLine(
            round=close.round,
            start_s=close.start_s,
            end_s=close.end_s,
            load=self._loads.pop(close.round, 0.0),
            late=close.late,
            waited=close.waited,
            in_flight=close.in_flight,
            sent=tuple(since.sent),
            arrivals=tuple(since.arrivals),
            asked=tuple(self._asked()),
            begun=tuple(since.begun),
        )

    def _retire(self, close: Close) -> None:
        """Lets go of weights that no invocation of an open round, and no later round, will refer to."""
        last = self._plan.jobs if self._scheme.overlapping else close.round - self._scheme.delay
        held = self._scheme.needs_weights()
        over = [job for job in self._applied if job <= last and job not in held]
        for job in over:
            self._trainer.retire(job)
        self._applied = [job for job in self._applied if job not in set(over)]

    def _flush(self) -> None:
        """Writes the line of the round that closed last, with what was decoded since the line before."""
        if self._line is not None:
            decoded, self._since.decoded = self._since.decoded, []
            self._recorder.write(structs.replace(self._line, decoded=tuple(decoded), beside=self._beside_since()))
            self._line = None

    def _finish(self, state: str, reason: str) -> None:
        self._flush()
        since, self._since = self._since, _Since()
        end_s = self._fleet.now()
        self._recorder.write(
            rec.EndLine(
                state,
                end_s,
                reason,
                tuple(since.arrivals),
                tuple(since.decoded),
                tuple(since.sent),
                self._beside_since(),
                tuple(self._cpus()),
                tuple(since.begun),
            )
        )

    def _beside_since(self) -> rec.Beside:
        """What was called beside the rounds since the last line."""
        since = self._take_beside()
        self._beside += since
        return since


def _metrics(told: StepResult) -> tuple[Mapping[str, float], ...]:
    """Of each step of a job; empty where there are none."""
    steps = (*told.earlier, told)
    return tuple(each.metrics for each in steps) if any(each.metrics for each in steps) else ()


def _state_after(error: BaseException) -> str:
    """What the record says of a run that ended so; a second Ctrl-C stops it too."""
    if isinstance(error, GradmuxError):
        return error.state
    return "failed" if isinstance(error, Exception) else "stopped"
