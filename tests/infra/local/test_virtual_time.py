"""Timeouts of a quarter of an hour, in no time: the emulator's own rules on a loop whose clock jumps."""

from __future__ import annotations

import asyncio
import base64
import selectors
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest

from infra.local.answers import Answer
from infra.local.call import Call
from infra.local.config import EmulatorConfig
from infra.local.injection import DelayPlan
from infra.local.invocation import Invoker
from infra.local.pool import Pool
from infra.local.sandbox import Reply, Verdict, WorkerDied
from infra.local.statistics import Statistics
from infra.local.wire import ReplyKind

LONGEST_S = 900.0


class JumpingSelector(selectors.DefaultSelector):
    """Never waits: the time that it was to wait for has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0.0
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


class SlowSandbox:
    """A worker that takes its time, unless it is killed."""

    number, init_s, peak_mb = 1, 0.0, 100

    def __init__(self, seconds: float) -> None:
        self.verdict: Verdict | None = None
        self.killed = asyncio.Event()
        self._seconds = seconds

    async def call(self, *_: object) -> Reply:
        try:
            await asyncio.wait_for(self.killed.wait(), self._seconds)
        except TimeoutError:
            return Reply(ReplyKind.RESULT, bytearray(b'"done"'))
        raise WorkerDied(signal.SIGKILL)

    def log_tail(self) -> bytes:
        return b""


class OneSandbox:
    """A pool with one sandbox in it; also its own memory watch, which sees nothing."""

    def __init__(self, sandbox: SlowSandbox) -> None:
        self.sandbox, self.memory = sandbox, self

    async def take(self, worker: int | None) -> tuple[SlowSandbox, bool]:
        return self.sandbox, False

    def give_back(self, sandbox: SlowSandbox) -> None: ...

    def begin(self, sandbox: SlowSandbox) -> None: ...

    def end(self, sandbox: SlowSandbox) -> None: ...

    def kill(self, sandbox: SlowSandbox, verdict: Verdict) -> None:
        sandbox.verdict = verdict
        sandbox.killed.set()


def answered(timeout_s: float, handler_s: float, delay_s: float = 0.0) -> tuple[Answer, float, str]:
    """The answer, when it came (s), and its log tail."""
    event = b'{"op": "gradient", "round": 0, "worker": 0, "attempt": 1, "load": 0.0, "tasks": []}'

    async def invoke() -> tuple[Answer, float, str]:
        config = EmulatorConfig(timeout_s=timeout_s, slots=1, delays=DelayPlan.of([[delay_s]]))
        pool = cast(Pool, OneSandbox(SlowSandbox(handler_s)))
        invoker = Invoker(config, pool, Statistics())
        call = Call(event, b"arn", "1", tail=True)
        assert invoker.admit(call) is None
        answer = await invoker.invoke(call)
        log = base64.b64decode(call.log_result or "").decode()
        return answer, asyncio.get_running_loop().time(), log

    with asyncio.Runner(loop_factory=cast(Callable[[], Any], JumpingLoop)) as runner:
        return runner.run(invoke())


@pytest.mark.parametrize("timeout_s", [899.0, LONGEST_S])
@pytest.mark.parametrize("by", ["handler", "delay"])
def test_just_in_time(timeout_s: float, by: str) -> None:
    seconds = timeout_s - 0.1
    answer, at_s, log = answered(timeout_s, *((seconds, 0.0) if by == "handler" else (0.0, seconds)))
    assert (answer.function_error, bytes(answer.body)) == (None, b'"done"')
    assert at_s == pytest.approx(seconds)
    assert f"Billed Duration: {1000 * seconds:.0f} ms" in log


@pytest.mark.parametrize("timeout_s", [899.0, LONGEST_S])
@pytest.mark.parametrize("by", ["handler", "delay"])
def test_just_too_late(timeout_s: float, by: str) -> None:
    seconds = timeout_s + 0.1
    answer, at_s, log = answered(timeout_s, *((seconds, 0.0) if by == "handler" else (0.0, seconds)))
    assert answer.name == "Sandbox.Timedout"
    assert f"Task timed out after {timeout_s:.2f} seconds" in answer.body.decode()
    assert at_s == pytest.approx(timeout_s)
    assert f"Billed Duration: {1000 * timeout_s:.0f} ms" in log
    assert "Status: timeout" in log


def test_no_timeout_is_longer_than_lambdas() -> None:
    from infra.local.errors import EmulatorError

    with pytest.raises(EmulatorError, match="at most 900"):
        EmulatorConfig(timeout_s=LONGEST_S + 1)
