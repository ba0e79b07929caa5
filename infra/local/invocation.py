"""The life of one invocation: let in or refused, given a sandbox and a run slot, delayed or hurt as planned, answered.

Knows Lambda's rules, not HTTP's: `endpoint.py` is the caller. Read next: `pool.py`, `answers.py`.

    accepted -> fault that refuses? -> concurrency limit? -> sandbox (warm or cold) -> run slot -> handler
             -> wait until accepted + delay -> answer, with the log tail that was asked for
"""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from dataclasses import dataclass, field, replace

from infra.local import answers
from infra.local.answers import Answer
from infra.local.config import EmulatorConfig
from infra.local.corruption import corrupted
from infra.local.event import EventFields, event_fields
from infra.local.faults import FaultKind
from infra.local.gate import Gate
from infra.local.pool import InitFailed, Pool
from infra.local.report import Report
from infra.local.sandbox import Sandbox, WorkerDied
from infra.local.statistics import Invocation, Statistics
from infra.local.wire import ReplyKind

REFUSING = {
    FaultKind.THROTTLE: answers.too_many_requests,
    FaultKind.SERVICE: answers.service_exception,
    FaultKind.UNAVAILABLE: answers.service_unavailable,
}
ERROR_NAME_BYTES = 4096


@dataclass(slots=True)
class Call:
    """One POST, and what became of it."""

    payload: bytes
    arn: bytes
    version: str
    client_context: bytes = b""
    tail: bool = False
    """X-Amz-Log-Type: Tail"""
    event: bool = False
    """InvocationType Event"""
    accepted: float = 0.0
    """loop time, seconds"""
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    fields: EventFields | None = None
    fault: FaultKind | None = None
    log_result: str | None = None
    """base64 tail, once answered"""


@dataclass(slots=True)
class Run:
    """What the sandbox did for a call."""

    answer: Answer
    compute_s: float = 0.0
    status: str | None = None
    """Lambda's name of a failure outside the handler"""


class Invoker:
    """Decides on every call. The configuration may be replaced between calls (delays, faults)."""

    def __init__(self, config: EmulatorConfig, pool: Pool, statistics: Statistics) -> None:
        self.config = config
        self.statistics = statistics
        self._pool = pool
        self._gate = Gate(config.run_slots)
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._room = asyncio.Event()

    def admit(self, call: Call) -> Answer | None:
        """Lets a call in (None), or refuses it. Reads round and worker of its event on the way."""
        call.accepted = self._loop.time()
        call.fields = event_fields(call.payload)
        if call.fields is not None:
            call.fault = self.config.faults.decide(call.fields.round, call.fields.worker, call.fields.attempt)
        if call.fault is not None:
            self.statistics.faults[call.fault.value] += 1
        if call.fault in REFUSING:
            return self._refused(call, REFUSING[call.fault]())
        if not call.event and self.statistics.in_flight >= self.config.concurrency:
            return self._refused(call, answers.too_many_requests())
        return None

    async def invoke(self, call: Call) -> Answer:
        """Runs an admitted synchronous call to its answer."""
        self.statistics.enter()
        try:
            return await self._answer(call)
        finally:
            self.statistics.leave()
            self._room.set()

    async def invoke_event(self, call: Call) -> None:
        """Runs an admitted Event call when there is room, again when it fails and retries are configured."""
        for attempt in range(1 + self.config.event_retries):
            if attempt:
                await asyncio.sleep(self.config.event_retry_wait_s * 2 ** (attempt - 1))
            while self.statistics.in_flight >= self.config.concurrency:
                self._room.clear()
                await self._room.wait()
            answer = await self.invoke(call)
            if answer.function_error is None:
                return

    async def _answer(self, call: Call) -> Answer:
        try:
            sandbox, cold = await self._pool.take(call.fields.worker if call.fields else None)
        except (InitFailed, WorkerDied) as error:
            return self._finish(call, None, False, Run(answers.init_failed(call.request_id, str(error)), status="init"))
        try:
            run = await self._run_with_delay(call, sandbox)
            return self._finish(call, sandbox, cold, run)
        finally:
            self._pool.give_back(sandbox)

    async def _run_with_delay(self, call: Call, sandbox: Sandbox) -> Run:
        """Runs the handler, then waits outside the slot until the injected delay is over, or the timeout."""
        delays = self.config.delays
        delay_s = (
            delays.delay_s(call.fields.round, call.fields.worker, call.fields.attempt, call.fields.load)
            if call.fields
            else 0.0
        )
        timeout_s = self.config.timeout_s * delays.time_scale
        late = delay_s > timeout_s or call.fault is FaultKind.TIMEOUT
        run = await self._run(call, sandbox)
        if run.status is not None and not late:
            return run
        await self._until(call.accepted + (timeout_s if late else delay_s))
        if late:
            self._pool.kill(sandbox)
            return Run(answers.timed_out(call.request_id, self.config.timeout_s), timeout_s, "timeout")
        run.compute_s = max(run.compute_s, delay_s)
        return run

    async def _run(self, call: Call, sandbox: Sandbox) -> Run:
        """Holds a slot while the handler, or its injected fate, runs."""
        await self._gate.acquire()
        began = self._loop.time()
        timer = self._loop.call_later(self.config.timeout_s, self._pool.kill, sandbox)
        self._pool.running(sandbox)
        try:
            run = await self._fate(call, sandbox)
        except WorkerDied as death:
            run = self._death(call, sandbox, death, timed_out=self._loop.time() - began >= self.config.timeout_s)
        finally:
            timer.cancel()
            self._pool.rests(sandbox)
            self._gate.release()
        run.compute_s = self._loop.time() - began
        return run

    async def _fate(self, call: Call, sandbox: Sandbox) -> Run:
        """The handler's reply, or the fault that stands in for it. Raises WorkerDied."""
        if call.fault is FaultKind.TIMEOUT:
            return Run(answers.timed_out(call.request_id, self.config.timeout_s))
        if call.fault is FaultKind.ERROR:
            return Run(answers.function_error("InjectedError", "injected error"))
        if call.fault is FaultKind.INIT:
            self._pool.kill(sandbox)
            return Run(
                answers.init_failed(call.request_id, "injected failure to start"), status="Runtime.ImportModuleError"
            )
        if call.fault is FaultKind.CRASH:
            self._pool.kill(sandbox, signal.SIGSEGV)
        elif call.fault is FaultKind.OOM:
            sandbox.out_of_memory = True
            self._pool.kill(sandbox)
        deadline_ms = int(1000 * (time.time() + self.config.timeout_s))
        reply = await sandbox.call(call.request_id, deadline_ms, call.arn, call.client_context, call.payload)
        return Run(self._replied(call, reply.kind, reply.body))

    def _replied(self, call: Call, kind: ReplyKind, body: memoryview) -> Answer:
        if kind is ReplyKind.BAD_REQUEST:
            return answers.not_json(bytes(body).decode())
        if kind is ReplyKind.ERROR:
            return Answer(200, body, function_error="Unhandled")
        if len(body) > answers.RESPONSE_BYTES:
            return answers.response_too_large(len(body))
        answer = Answer(200, body)
        if call.fault is FaultKind.TRUNCATE:
            return replace(answer, wire="truncated")
        if call.fault is FaultKind.CORRUPT:
            return replace(answer, body=corrupted(bytes(body)))
        return answer

    def _death(self, call: Call, sandbox: Sandbox, death: WorkerDied, timed_out: bool) -> Run:
        """Why the process ended, most telling reason first."""
        if sandbox.out_of_memory:
            return Run(answers.out_of_memory(call.request_id), status="Runtime.OutOfMemory")
        if timed_out:
            return Run(answers.timed_out(call.request_id, self.config.timeout_s), status="timeout")
        return Run(answers.exited(call.request_id, death.how), status="Runtime.ExitError")

    async def _until(self, when: float) -> None:
        """Never returns early, even if the loop's timers do."""
        while (left := when - self._loop.time()) > 0:
            await asyncio.sleep(left)

    def _finish(self, call: Call, sandbox: Sandbox | None, cold: bool, run: Run) -> Answer:
        """Accounts for the call and writes its log tail."""
        report = Report(
            request_id=call.request_id,
            version=call.version,
            duration_s=run.compute_s,
            memory_mb=self.config.memory_mb,
            max_memory_mb=self._memory_used(sandbox),
            init_s=sandbox.init_s if sandbox and cold else None,
            status=run.status,
        )
        if call.tail:
            call.log_result = report.tail(sandbox.log_tail() if sandbox else b"")
        outcome = error_name(run.answer)
        if outcome != "ok":
            self.statistics.errors[outcome] += 1
        self.statistics.billed_ms += report.billed_ms
        self.statistics.cold_starts += cold
        self._enter_journal(call, outcome, report.billed_ms, sandbox.number if sandbox else None, cold)
        return run.answer

    def _memory_used(self, sandbox: Sandbox | None) -> int:
        if sandbox is None:
            return 0
        return self.config.memory_mb if sandbox.out_of_memory else min(self.config.memory_mb, sandbox.peak_kb // 1024)

    def _refused(self, call: Call, answer: Answer) -> Answer:
        self.statistics.refused[answer.error_name or ""] += 1
        self._enter_journal(call, answer.error_name or "", 0, None, False)
        return answer

    def _enter_journal(self, call: Call, outcome: str, billed_ms: int, sandbox: int | None, cold: bool) -> None:
        at = call.fields
        self.statistics.journal.append(
            Invocation(
                request_id=call.request_id,
                round=at.round if at else None,
                worker=at.worker if at else None,
                attempt=at.attempt if at else None,
                sandbox=sandbox,
                cold=cold,
                event=call.event,
                accepted_s=call.accepted - self._started,
                answered_s=self._loop.time() - self._started,
                billed_ms=billed_ms,
                outcome=outcome,
            )
        )


def error_name(answer: Answer) -> str:
    """ "ok", or the name of what went wrong."""
    if answer.error_name is not None:
        return answer.error_name
    if answer.function_error is None:
        return "ok"
    head = bytes(answer.body[:ERROR_NAME_BYTES])
    for marker in (b'"errorType": "', b'"errorType":"'):
        if marker in head:
            return head.split(marker, 1)[1].split(b'"', 1)[0].decode()
    return "Unhandled"
