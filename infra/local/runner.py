"""One call in its sandbox: waits for a run slot, then the handler runs, or the fault that was planned for it.

Knows Lambda's function errors, not its API's refusals, and no delays: `invocation.py` is the caller.
Read next: `sandbox.py`.
"""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import replace

from gradmux.infra.local import answers
from gradmux.infra.local.answers import Answer
from gradmux.infra.local.call import Call, Run
from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.corruption import corrupted, of_another_life
from gradmux.infra.local.faults import FaultKind
from gradmux.infra.local.gate import Gate
from gradmux.infra.local.pool import Pool
from gradmux.infra.local.sandbox import Reply, Sandbox, Verdict, WorkerDied
from gradmux.infra.local.wire import ReplyKind


class Runner:
    """Runs calls, as many at a time as there are slots."""

    def __init__(self, config: EmulatorConfig, pool: Pool) -> None:
        self._timeout_s = config.timeout_s
        self._pool = pool
        self._gate = Gate(config.run_slots)
        self._loop = asyncio.get_running_loop()

    async def run(self, call: Call, sandbox: Sandbox) -> Run:
        """Holds a slot while the handler runs. The function's timeout counts from the grant of the slot."""
        await self._gate.acquire()
        began = self._loop.time()
        timer = self._loop.call_later(self._timeout_s, self._pool.kill, sandbox, Verdict.TIMED_OUT)
        self._pool.memory.begin(sandbox)
        try:
            run = await self._fate(call, sandbox)
        except WorkerDied as death:
            run = self._death(call, sandbox, death)
        finally:
            timer.cancel()
            self._pool.memory.end(sandbox)
            self._gate.release()
        run.duration_s = min(self._timeout_s, self._loop.time() - began)
        return run

    async def _fate(self, call: Call, sandbox: Sandbox) -> Run:
        """The handler's reply, or what stands in for it. Raises WorkerDied."""
        if call.fault is FaultKind.TIMEOUT:
            return self._timed_out(call)  # `invocation.py` waits for the timeout, outside the slot
        if call.fault is FaultKind.ERROR:
            return Run(answers.function_error("InjectedError", "injected error"))
        if call.fault is FaultKind.INIT:
            self._pool.kill(sandbox, Verdict.INJECTED)
            answer = answers.init_failed(call.request_id, "injected failure to start")
            return Run(answer, status="Runtime.ImportModuleError")
        if call.fault is FaultKind.CRASH:
            self._pool.kill(sandbox, Verdict.INJECTED, signal.SIGSEGV)
            await sandbox.death()
        if call.fault is FaultKind.OOM:
            self._pool.kill(sandbox, Verdict.OUT_OF_MEMORY)
            await sandbox.death()
        deadline_ms = int(1000 * (time.time() + self._timeout_s))
        reply = await sandbox.call(call.request_id, deadline_ms, call.arn, call.client_context, call.payload)
        return Run(answer_of(reply, call.fault))

    def _death(self, call: Call, sandbox: Sandbox, death: WorkerDied) -> Run:
        """Why the process ended."""
        if sandbox.verdict is Verdict.OUT_OF_MEMORY:
            return Run(answers.out_of_memory(call.request_id), status="Runtime.OutOfMemory")
        if sandbox.verdict is Verdict.TIMED_OUT:
            return self._timed_out(call)
        return Run(answers.exited(call.request_id, death.how), status="Runtime.ExitError")

    def _timed_out(self, call: Call) -> Run:
        return Run(answers.timed_out(call.request_id, self._timeout_s), status="timeout")


def answer_of(reply: Reply, fault: FaultKind | None) -> Answer:
    """What the caller gets for a worker's reply, damaged when that is planned."""
    if reply.kind is ReplyKind.BAD_REQUEST:
        return answers.not_json(reply.body.decode())
    if reply.kind is ReplyKind.ERROR:
        return Answer(200, reply.body, function_error="Unhandled")
    if len(reply.body) > answers.RESPONSE_BYTES:
        return answers.response_too_large(len(reply.body))
    answer = Answer(200, reply.body)
    if fault is FaultKind.TRUNCATE:
        return replace(answer, wire="truncated")
    if fault is FaultKind.CORRUPT:
        return replace(answer, body=corrupted(reply.body))
    if fault is FaultKind.STALE:
        return replace(answer, body=of_another_life(reply.body))
    return answer
