"""The life of one invocation: let in or refused, given a sandbox, run, delayed as planned, accounted for, answered.

Knows Lambda's rules, not HTTP's: `endpoint.py` is the caller. Read next: `runner.py`, `pool.py`, `answers.py`.

    accepted -> fault that refuses? -> concurrency limit? -> sandbox (warm or cold) -> run slot -> handler
             -> wait until accepted + delay -> answer, with the log tail that was asked for
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import replace

from gradmux.infra.local import answers
from gradmux.infra.local.answers import Answer
from gradmux.infra.local.call import Call, Run
from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.event import event_fields
from gradmux.infra.local.faults import FaultKind, FaultPlan
from gradmux.infra.local.pool import InitFailed, Pool
from gradmux.infra.local.report import Report
from gradmux.infra.local.runner import Runner
from gradmux.infra.local.sandbox import Sandbox, Verdict, WorkerDied
from gradmux.infra.local.statistics import Statistics

REFUSING = {
    FaultKind.THROTTLE: answers.too_many_requests(),
    FaultKind.SERVICE: answers.service_exception(),
    FaultKind.UNAVAILABLE: answers.service_unavailable(),
    FaultKind.EXPIRED: answers.expired_token(),
}


ROUNDING_S = 1e-9
"""Instants that are so near are the same."""


class Invoker:
    """Decides on every call. Its configuration may be replaced between calls, as far as delays and faults go."""

    def __init__(self, config: EmulatorConfig, pool: Pool, statistics: Statistics) -> None:
        self.config = config
        self.statistics = statistics
        self._pool = pool
        self._runner = Runner(config, pool)
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._room = asyncio.Event()
        self._refusals: Counter[tuple[int, int, int]] = Counter()
        """(round, worker, attempt) -> how often a fault has refused it and it was not let in since"""

    def set_faults(self, plan: FaultPlan) -> None:
        """Replaces the faults of calls from now on."""
        self.config = replace(self.config, faults=plan)
        self._refusals.clear()

    def admit(self, call: Call) -> Answer | None:
        """Lets a call in (None), or refuses it. Reads round and worker of its event on the way."""
        call.accepted = self._loop.time()
        call.fields = event_fields(call.payload)
        self._plan_fault(call)
        refused = REFUSING.get(call.fault) if call.fault else None
        if refused is None and not call.event and not self._has_room():
            refused = answers.too_many_requests()
        if refused is not None:
            self.statistics.refused[refused.name] += 1
            self._enter_journal(call, refused.name)
        return refused

    async def invoke(self, call: Call) -> Answer:
        """Runs an admitted synchronous call to its answer."""
        self.statistics.enter()
        try:
            return await self._answer(call)
        finally:
            self.statistics.leave()
            self._room.set()

    async def invoke_event(self, call: Call) -> None:
        """Runs an admitted Event call; twice at once when that fault is planned."""
        if call.fault is FaultKind.DUPLICATE:
            await asyncio.gather(self._deliver(call), self._deliver(replace(call, fault=None)))
        else:
            await self._deliver(call)

    async def _deliver(self, call: Call) -> None:
        """Invokes when there is room, and again after a failure as often as configured; a retry is another attempt."""
        for retry in range(1 + self.config.event_retries):
            if retry:
                await asyncio.sleep(self.config.event_retry_wait_s * 2 ** (retry - 1))
                self._plan_fault(call, retry)
            while not self._has_room():
                self._room.clear()
                await self._room.wait()
            answer = await self.invoke(call)
            if answer.function_error is None:
                return

    def _has_room(self) -> bool:
        return self.statistics.in_flight < self.config.concurrency

    def _plan_fault(self, call: Call, retry: int = 0) -> None:
        """The fault that this delivery suffers."""
        call.fault = None
        if call.fields is None:
            return
        place = (call.fields.round, call.fields.worker, call.fields.attempt + retry)
        call.fault = self.config.faults.decide(*place, self._refusals[place])
        if call.fault in REFUSING:
            self._refusals[place] += 1
        else:
            self._refusals.pop(place, None)
        if call.fault is not None:
            self.statistics.faults[call.fault.value] += 1

    async def _answer(self, call: Call) -> Answer:
        try:
            sandbox, cold = await self._pool.take(call.fields.worker if call.fields else None)
        except (InitFailed, WorkerDied) as error:
            answer = answers.init_failed(call.request_id, str(error))
            return self._finish(call, Run(answer, status="Runtime.ImportModuleError"), None, False)
        try:
            run = await self._run_with_delay(call, sandbox)
            return self._finish(call, run, sandbox, cold)
        finally:
            self._pool.give_back(sandbox)

    async def _run_with_delay(self, call: Call, sandbox: Sandbox) -> Run:
        """Runs the handler, then waits outside the slot until the injected delay is over, or the function's timeout.

        What the handler puts into S3 must not be there before the delay is over, either: then part of it, or all, comes
        first. Both are scaled real time. A worker that dies answers at once. Where the delays say that a call fails,
        the handler does not run, and the worker dies when they say so.
        """
        fails_s = self._fails_s(call)
        if fails_s is not None:
            await self._until(call.accepted + fails_s)
            return self._fail(call, sandbox, fails_s)
        delay_s, before_s = self._delay_s(call), self._delay_before_s(call)
        timeout_s = self.config.timeout_s * self.config.delays.time_scale
        too_slow = delay_s > timeout_s or call.fault is FaultKind.TIMEOUT
        if before_s > 0.0:
            await self._until(call.accepted + min(before_s, timeout_s))
        if too_slow and call.event:
            return self._time_out(call, sandbox, timeout_s)
        run = await self._runner.run(call, sandbox)
        if run.status is not None and not too_slow:
            return run
        await self._until(call.accepted + (timeout_s if too_slow else delay_s))
        if too_slow:
            return self._time_out(call, sandbox, timeout_s)
        run.duration_s = max(run.duration_s, delay_s)
        return run

    def _time_out(self, call: Call, sandbox: Sandbox, timeout_s: float) -> Run:
        self._pool.kill(sandbox, Verdict.TIMED_OUT)
        return Run(answers.timed_out(call.request_id, self.config.timeout_s), timeout_s, "timeout")

    def _fails_s(self, call: Call) -> float | None:
        """When a call whose answer is missing in the delays fails; None: it does not."""
        at = call.fields
        return self.config.delays.fails_s(at.round, at.worker, at.attempt, self.config.timeout_s) if at else None

    def _fail(self, call: Call, sandbox: Sandbox, fails_s: float) -> Run:
        if fails_s >= self.config.timeout_s * self.config.delays.time_scale:
            return self._time_out(call, sandbox, fails_s)
        self._pool.kill(sandbox, Verdict.INJECTED)
        return Run(answers.exited(call.request_id, "injected, as the delays say"), fails_s, "Runtime.ExitError")

    def _delay_s(self, call: Call) -> float:
        at = call.fields
        return self.config.delays.delay_s(at.round, at.worker, at.attempt, at.load) if at else 0.0

    def _delay_before_s(self, call: Call) -> float:
        """The part of the delay before anything that the handler does may be seen."""
        at = call.fields
        if call.event:
            return self._delay_s(call)
        if at is None or at.early_load is None:
            return 0.0
        return self.config.delays.delay_s(at.round, at.worker, at.attempt, at.early_load)

    async def _until(self, when: float) -> None:
        """Never returns early, even if the loop's timers do, which count whole milliseconds."""
        while (left := when - self._loop.time()) > ROUNDING_S:
            await asyncio.sleep(math.ceil((left - ROUNDING_S) * 1e3) / 1e3)

    def _finish(self, call: Call, run: Run, sandbox: Sandbox | None, cold: bool) -> Answer:
        """Accounts for the call and writes its log tail."""
        report = Report(
            request_id=call.request_id,
            version=call.version,
            duration_s=run.duration_s,
            memory_mb=self.config.memory_mb,
            max_memory_mb=min(self.config.memory_mb, sandbox.peak_mb) if sandbox else 0,
            init_s=sandbox.init_s if sandbox and cold else None,
            status=run.status,
        )
        if call.tail:
            call.log_result = report.tail(sandbox.log_tail() if sandbox else b"")
        if run.answer.name != "ok":
            self.statistics.errors[run.answer.name] += 1
        self.statistics.billed_ms += report.billed_ms
        self.statistics.cold_starts += cold
        self._enter_journal(call, run.answer.name, report.billed_ms, sandbox.number if sandbox else None, cold)
        return run.answer

    def _enter_journal(
        self, call: Call, outcome: str, billed_ms: int = 0, sandbox: int | None = None, cold: bool = False
    ) -> None:
        """Fields in the order of `statistics.JOURNAL_FIELDS`."""
        at = call.fields
        place = (at.round, at.worker, at.attempt) if at else (None, None, None)
        accepted_s, answered_s = call.accepted - self._started, self._loop.time() - self._started
        self.statistics.journal.append(
            (call.request_id, *place, sandbox, cold, call.event, accepted_s, answered_s, billed_ms, outcome)
        )
