"""Decides, from who answered when and what is in flight, which jobs decode and whether the next round may start.

A state machine without I/O: the loop tells it what happened (`sent`, `arrived`, `tick`, `stepped`) and asks
`next_action` until there is none. Its decisions depend on the order and times of these events alone, never on a clock,
so that a record of them replays to the same run. It does not know tensors, fleets or how a scheme works inside.

Round-synchronous schemes play "round t + 1 when round t has closed"; an `overlapping` scheme dispatches each job when
its model is ready and capacity allows. Read next: `loop.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import TypeAlias

from gradmux.orchestrator.errors import ConfigError, DeadlinePassed, SchemeFault, TaskFailed
from gradmux.orchestrator.jobs import OpenPlan, Plan, require_models
from gradmux.orchestrator.policies import Limits, Mu, WaitPolicy
from gradmux.orchestrator.ports import Arrival, Invocation, Outcome
from gradmux.orchestrator.readiness import readiness_of
from gradmux.orchestrator.round_state import RoundState
from gradmux.orchestrator.schemes.asks import Call
from gradmux.orchestrator.schemes.checked import Checked
from gradmux.orchestrator.schemes.scheme import Key, Scheme, loads_by_message


@dataclass(frozen=True, slots=True)
class Send:
    """Invoke these now; answer with `Rounds.sent`."""

    invocations: tuple[Invocation, ...]


@dataclass(frozen=True, slots=True)
class Decode:
    """Combine and apply this job's gradient; answer with `Rounds.stepped`."""

    job: int
    estimate: bool = False
    """True: there is only the least-squares decode"""


@dataclass(frozen=True, slots=True)
class Close:
    """The round is over (for overlapping schemes: its job has decoded)."""

    round: int
    start_s: float
    end_s: float
    late: tuple[int, ...]
    """workers that had not answered"""
    waited: bool
    """mu rule: the stragglers at the cut did not conform"""
    in_flight: int
    """invocations still running, of all rounds"""


Action: TypeAlias = Send | Decode | Close


class Rounds:
    """The state of one run. Raises ConfigError at once when the scheme does not fit the models or the concurrency."""

    def __init__(
        self,
        scheme: Scheme,
        plan: Plan,
        policy: WaitPolicy,
        limits: Limits,
        *,
        already: Set[int] = frozenset(),
        epoch: int = 0,
    ) -> None:
        """`already`: jobs of this life that an overlapping scheme had decoded before it was resumed."""
        self.scheme = scheme = _checked(scheme, plan)
        """as the loop asks it"""
        require_models(plan.models, 0 if scheme.overlapping else scheme.delay, scheme.name)
        self._split = limits.split or scheme.splits
        """may a round's first dispatch go out in pieces?"""
        self._backup = limits.backup or scheme.backup
        if limits.concurrency is not None and limits.concurrency < scheme.workers and not self._split:
            raise ConfigError(
                f"{scheme.name} invokes {scheme.workers} workers a round, but concurrency is {limits.concurrency}: "
                f"use at most {limits.concurrency} workers or raise the concurrency"
            )
        self._scheme, self._plan, self._policy, self._limits, self._epoch = scheme, plan, policy, limits, epoch
        self._last_round = -1
        self._ready = readiness_of(plan, scheme, already)
        self._model = scheme.straggler_model(policy.straggler_model) if isinstance(policy, Mu) else None
        self._now = 0.0
        self._rounds: dict[int, RoundState] = {}
        self._stepped: set[int] = set(already)
        self._claimed: set[int] = set(already)
        """jobs that are decodable: pending, handed out or applied"""
        self._pending: list[int] = []
        self._estimates: set[int] = set()
        self._outbox: list[Invocation] = []
        self._in_flight = 0
        self._due_last = -1
        """the last job that was due when a round closed: while it waits to be decoded, no other round may close"""
        self._look = True
        """False while nothing has happened that could let a round close"""

    # --- what the loop tells ---------------------------------------------------------------------

    def sent(self, invocations: Iterable[Invocation], at_s: float) -> None:
        """The invocations of a `Send` are on their way since `at_s`."""
        for call in invocations:
            this = self._rounds[call.round]
            if not this.sent:
                this.sent, this.start_s = True, at_s
            this.running[call.worker] = this.running.get(call.worker, 0) + 1
            self._in_flight += 1
            if self._scheme.follows:
                self._scheme.began(Call(call.round, call.worker, call.attempt), at_s)
        self._now = max(self._now, at_s)

    def arrived(self, arrival: Arrival) -> bool:
        """One invocation answered (or one early message of it), well or badly. True: its results may be of use."""
        self._now = max(self._now, arrival.at_s)
        self._look = True
        this = self._rounds[arrival.round]
        if arrival.final:
            self._came_back(this, arrival)
        of_use = self._counts(this) and arrival.worker not in this.heard
        if arrival.slots or arrival.outcome is Outcome.OK:
            if of_use:
                self._hear(this, arrival)
            else:
                this.heard.add(arrival.worker)
        if arrival.final and arrival.worker not in this.heard:
            self._failed(this, arrival)
        self._forget_if_over(this)
        return of_use

    def tick(self, at_s: float) -> None:
        """The instant that `wake_at` named has come without an arrival."""
        self._now = max(self._now, at_s)
        self._look = True
        for this in self._open_rounds():
            cut = self._cut_s(this)
            if cut is not None and at_s >= cut:
                this.cut_passed = True
            deadline = this.deadline_s(self._limits.deadline_s)
            if deadline is not None and at_s >= deadline:
                self._past_deadline(this)
            self._back_up_if_due(this)

    def stepped(self, job: int) -> None:
        """The gradient of `job` was applied: the next job of its model may start."""
        self._stepped.add(job)

    def cut(self, job: int, steps: int) -> None:
        """The job that is decoded came to so many steps only: its model goes on from there."""
        if steps < self._plan.job(job).steps:
            assert isinstance(self._plan, OpenPlan), "only an open plan has jobs of several steps"
            self._plan.cut(job, steps)
            self._look = True

    def shorten(self) -> Plan:
        """Ends the run early, at the furthest step that any model has begun; the plan from now on.

        Nothing changes for a scheme with a delay, whose tasks of a job are spread over rounds that it has planned.
        """
        if self._scheme.delay == 0:
            self._plan = self._ready.shorten()
            self._look = True
        return self._plan

    # --- what the loop asks ----------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """All jobs are applied, and (under the mu rule, which plays them all) every round has closed."""
        if len(self._stepped) < self._plan.jobs:
            return False
        if self._all_claimed():
            return not self._open_rounds()
        return self._ready.done(self._stepped) and not any(not r.closed for r in self._rounds.values())

    @property
    def in_flight(self) -> int:
        """Invocations on their way, late ones of closed rounds included."""
        return self._in_flight

    def knows(self, round_index: int) -> bool:
        """Is anything of that round still in flight, or the round open?"""
        return round_index in self._rounds

    def last_invocation(self, round_index: int, worker: int) -> Invocation:
        """What this worker was asked last in a round that `knows`: the input of a task that keeps failing."""
        this = self._rounds[round_index]
        return self._call(this, worker, this.attempts[worker])

    def wake_at(self) -> float | None:
        """The next instant at which a decision may change without an arrival; None: never."""
        limits = self._limits
        instants = (
            at
            for this in self._open_rounds()
            for at in (self._cut_s(this), this.deadline_s(limits.deadline_s), self._backup_s(this))
            if at is not None
        )
        return min(instants, default=None)

    def next_action(self) -> Action | None:
        """What to do now; ask again after doing it. None: wait for the next event.

        A round closes and the next one is sent before a decoded gradient is applied, when that model is not waited for.
        Raises: TaskFailed when nothing is in flight and what is missing cannot be had, DeadlinePassed.
        """
        action = self._close() or self._send() or self._close_empty() or self._decode()
        if action is None and not self._in_flight and not self.finished and self.wake_at() is None:
            self._stuck()
        return action

    # --- hearing ---------------------------------------------------------------------------------

    def _came_back(self, this: RoundState, arrival: Arrival) -> None:
        self._in_flight -= 1
        this.running[arrival.worker] -= 1
        if self._scheme.follows:
            call = Call(arrival.round, arrival.worker, arrival.attempt)
            self._scheme.ended(call, arrival.at_s, answered=arrival.outcome is Outcome.OK)

    def _counts(self, this: RoundState) -> bool:
        """May an answer of this round still be used?"""
        return not this.closed or (self._limits.harvest_late and not self._scheme.overlapping)

    def _hear(self, this: RoundState, arrival: Arrival) -> None:
        this.note(arrival)
        tasks = this.slots[arrival.worker]
        touched: dict[int, None] = {}
        for slot in arrival.slots:
            key = Key(this.index, arrival.worker, slot)
            if slot in arrival.skipped:
                self._scheme.skipped(key)
            else:
                self._scheme.heard(key)
            task = tasks[slot]
            if task is not None:
                touched[task.job] = None
        self._claim_decodable(touched)
        self._back_up_if_due(this)

    def _all_claimed(self) -> bool:
        """Is every job decodable, so that nothing need be sent or waited for? (The mu rule plays all its rounds.)"""
        return len(self._claimed) >= self._plan.jobs and not isinstance(self._policy, Mu)

    def _claim_decodable(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            if job not in self._claimed and self._scheme.decodable(job):
                self._claim(job)

    def _claim(self, job: int) -> None:
        self._claimed.add(job)
        self._pending.append(job)

    def _failed(self, this: RoundState, arrival: Arrival) -> None:
        this.failures[arrival.worker] = arrival.error or arrival.outcome.value
        if not this.closed and not this.running.get(arrival.worker, 0):
            self._again(this, [arrival.worker])

    def _again(self, this: RoundState, workers: Iterable[int]) -> None:
        """Puts one more attempt of each worker at the head of the outbox, where the budget allows it."""
        queued = {call.worker for call in self._outbox if call.round == this.index}
        fresh = [
            self._invocation(this, worker)
            for worker in workers
            if this.attempts[worker] < self._limits.attempts and worker not in queued
        ]
        self._outbox = fresh + self._outbox

    def _forget_if_over(self, this: RoundState) -> None:
        if this.over:
            del self._rounds[this.index]

    # --- backups and deadlines -------------------------------------------------------------------

    def _backup_s(self, this: RoundState) -> float | None:
        """When missing tasks of an open round are invoked again by time; None: not, or not known yet."""
        if self._backup is not None:
            return this.backup_s(self._backup)
        return this.impatient_s(self._scheme.patience_s(this.index))

    def _back_up_if_due(self, this: RoundState) -> None:
        instant = None if this.closed or self._backup is not None else self._backup_s(this)
        if this.wants_backup(self._backup, self._now) or (instant is not None and self._now >= instant):
            this.backups += 1
            self._again(this, self._scheme.wanted(this.index))

    def _past_deadline(self, this: RoundState) -> None:
        """First time: invoke what is missing again. Second time: estimate what is due, or stop."""
        this.deadlines_passed += 1
        if this.deadlines_passed == 1:
            self._again(this, self._scheme.wanted(this.index))
            return
        due = self._due(this)
        if not due and self._scheme.may_start(this.index + 1):
            return  # nothing is missing: in-flight cap or wait policy held the round, which now closes
        silent = not all(self._scheme.estimate(job).weights for job in due)
        if silent or not self._limits.approximate:
            assert self._limits.deadline_s is not None
            raise DeadlinePassed(round=this.index, jobs=due, deadline_s=2 * self._limits.deadline_s, silent=silent)
        for job in due:
            self._estimates.add(job)
            self._claim(job)

    def _due(self, this: RoundState) -> tuple[int, ...]:
        """The job that must be decoded when this round closes, if it is not yet."""
        job = this.index if self._scheme.overlapping else this.index - self._scheme.delay
        return (job,) if 0 <= job < self._plan.jobs and job not in self._claimed else ()

    # --- closing ---------------------------------------------------------------------------------

    def _open_rounds(self) -> list[RoundState]:
        return [this for this in self._rounds.values() if this.open]

    def _close(self) -> Close | None:
        if not self._look or any(job <= self._due_last for job in self._pending):
            return None
        for this in self._open_rounds():
            if self._may_close(this):
                return self._closed(this)
        self._look = False
        return None

    def _close_empty(self) -> Close | None:
        """A round without tasks has been staged rather than sent: it closes at once."""
        return self._close() if self._look else None

    def _may_close(self, this: RoundState) -> bool:
        if self._scheme.overlapping:
            return this.index in self._claimed
        if this.deadlines_passed >= 2 or self._all_claimed():
            return True
        if isinstance(self._policy, Mu):
            return self._mu_closes(this, self._policy) and self._scheme.may_start(this.index + 1)
        cap = self._limits.in_flight_cap
        capped = cap is not None and self._in_flight > cap * self._scheme.workers
        return not capped and self._scheme.may_start(this.index + 1)

    def _mu_closes(self, this: RoundState, policy: Mu) -> bool:
        if len(this.heard) == len(this.slots):
            return True
        if not this.cut_passed or (this.waited and policy.wait_out == "all"):
            return False
        assert self._model is not None
        if self._model.admits(this.late(self._scheme.workers)):
            return True
        this.waited = True
        return False

    def _cut_s(self, this: RoundState) -> float | None:
        return this.cut_s(self._policy.mu) if isinstance(self._policy, Mu) else None

    def _closed(self, this: RoundState) -> Close:
        this.closed = True
        if self._model is not None:
            self._model.commit(this.late(self._scheme.workers))
        self._due_last = -1 if self._scheme.overlapping else this.index - self._scheme.delay
        self._outbox = [call for call in self._outbox if call.round != this.index]
        for job in self._scheme.end_round(this.index):
            if job not in self._claimed:
                self._scheme.fault(this.index, f"end_round says that job {job} is due, but it is not decodable")
        self._forget_if_over(this)
        late = tuple(this.missing())
        return Close(this.index, this.start_s, self._now, late, this.waited, self._in_flight)

    # --- sending ---------------------------------------------------------------------------------

    def _send(self) -> Send | None:
        free = len(self._outbox) + self._scheme.workers
        if self._limits.concurrency is not None:
            free = self._limits.concurrency - self._in_flight
        if not self._outbox and free >= (1 if self._split else self._scheme.workers):
            self._stage()
        fits = min(free, len(self._outbox))
        if fits <= 0 or (fits < len(self._outbox) and not self._divisible()):
            return None
        batch, self._outbox = self._outbox[:fits], self._outbox[fits:]
        return Send(tuple(batch))

    def _divisible(self) -> bool:
        """May the head of the outbox go alone? A round's first dispatch goes whole unless `split` is allowed."""
        return self._split or self._rounds[self._outbox[0].round].sent

    def _stage(self) -> None:
        """Puts the invocations of the next round that may be dispatched into the outbox."""
        if self._all_claimed():
            return
        t = self._ready.take(self._stepped, any(not r.closed for r in self._rounds.values()))
        if t is None:
            return
        assignment = self._scheme.assign(t)
        slots = {w: s for w, s in assignment.items() if any(task is not None for task in s)}
        if assignment and self._limits.invoke_idle:  # an assignment of no worker at all leaves the round out
            slots |= {w: () for w in range(self._scheme.workers) if w not in slots}
        this = self._rounds[t] = RoundState(index=t, slots=slots)
        self._last_round = t
        self._look = True
        if not slots:
            this.sent, this.start_s = True, self._now
        if t < self._plan.jobs:
            self._claim_decodable([t])  # a lazy scheme may have asked no worker
        self._outbox.extend(self._invocation(this, worker) for worker in slots)

    def _invocation(self, this: RoundState, worker: int) -> Invocation:
        this.attempts[worker] = this.attempts.get(worker, 0) + 1
        return self._call(this, worker, this.attempts[worker])

    def _call(self, this: RoundState, worker: int, attempt: int) -> Invocation:
        slots = this.slots[worker]
        *early, load = loads_by_message(slots, self._scheme.chunk_sizes)
        steps = self._plan.job(this.index).steps if self._scheme.overlapping else 1
        return Invocation(this.index, worker, attempt, slots, load * steps, self._epoch, tuple(early))

    # --- decoding --------------------------------------------------------------------------------

    def _decode(self) -> Decode | None:
        """Round-synchronous schemes apply jobs in order: it delays none, and what is done is a prefix at any time."""
        if not self._pending or (not self._scheme.overlapping and min(self._pending) != len(self._stepped)):
            return None
        job = self._pending.pop(0 if self._scheme.overlapping else self._pending.index(min(self._pending)))
        return Decode(job, estimate=job in self._estimates)

    def _stuck(self) -> None:
        for this in self._open_rounds():
            if not this.missing():
                self._scheme.stuck(this.index, len(this.slots), self._due(this))
            wanted = self._scheme.wanted(this.index) or tuple(this.missing())
            worker = next((w for w in wanted if w in this.failures), wanted[0] if wanted else -1)
            raise TaskFailed(
                round=this.index,
                worker=worker,
                jobs=this.missing_jobs(worker),
                attempts=this.attempts.get(worker, 0),
                reason=this.failures.get(worker, "no answer"),
            )
        missing = [job for job in range(self._plan.jobs) if job not in self._stepped]
        self._scheme.fault(self._last_round, f"it has no more rounds, but job {missing[0]} is not decoded")


def _checked(scheme: Scheme, plan: Plan) -> Checked:
    """Raises: SchemeFault, no worker having been invoked."""
    try:
        return Checked.of(scheme, plan.model)
    except SchemeFault as fault:
        raise fault.before_any_worker() from None
