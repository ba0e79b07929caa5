"""Timeouts of a quarter of an hour, in no time: the emulator's own rules on a loop whose clock jumps."""

from __future__ import annotations

import asyncio
import base64
import selectors
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest

from gradmux.infra.local.answers import Answer
from gradmux.infra.local.call import Call
from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.injection import DelayPlan
from gradmux.infra.local.invocation import Invoker
from gradmux.infra.local.pool import Pool
from gradmux.infra.local.sandbox import Reply, Verdict, WorkerDied
from gradmux.infra.local.statistics import Statistics
from gradmux.infra.local.wire import ReplyKind

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


def all_answered(
    timeout_s: float, handler_s: float, delay_s: float = 0.0, calls: int = 1
) -> list[tuple[Answer, float, str]]:
    """The answers to calls at once, when each came (s), and its log tail."""
    event = b'{"op": "gradient", "round": 0, "worker": 0, "attempt": 1, "load": 0.0, "tasks": []}'
    config = EmulatorConfig(timeout_s=timeout_s, slots=1, delays=DelayPlan.of([[delay_s]]))

    async def invoke(invoker: Invoker) -> tuple[Answer, float, str]:
        call = Call(event, b"arn", "1", tail=True)
        assert invoker.admit(call) is None
        answer = await invoker.invoke(call)
        log = base64.b64decode(call.log_result or "").decode()
        return answer, asyncio.get_running_loop().time(), log

    async def invoke_all() -> list[tuple[Answer, float, str]]:
        invoker = Invoker(config, cast(Pool, OneSandbox(SlowSandbox(handler_s))), Statistics())
        return await asyncio.gather(*(invoke(invoker) for _ in range(calls)))

    with asyncio.Runner(loop_factory=cast(Callable[[], Any], JumpingLoop)) as runner:
        return runner.run(invoke_all())


def answered(timeout_s: float, handler_s: float, delay_s: float = 0.0) -> tuple[Answer, float, str]:
    """The same for one call."""
    (only,) = all_answered(timeout_s, handler_s, delay_s)
    return only


@pytest.mark.parametrize(("handler_s", "delay_s"), [(0.2, 0.3), (0.2, 0.05), (0.0, 0.4)])
def test_compute_time_hides_in_the_delay(handler_s: float, delay_s: float) -> None:
    answer, at_s, log = answered(10.0, handler_s, delay_s)
    assert answer.function_error is None
    assert at_s == pytest.approx(max(handler_s, delay_s))
    assert f"Duration: {1000 * at_s:.2f} ms" in log


def test_delayed_calls_wait_side_by_side_and_hold_no_slot() -> None:
    """There is one slot to compute in."""
    told = all_answered(10.0, handler_s=0.01, delay_s=0.4, calls=6)
    assert [at_s for _, at_s, _ in told] == pytest.approx([0.4] * 6)
    told = all_answered(10.0, handler_s=0.3, delay_s=0.4, calls=3)
    assert [at_s for _, at_s, _ in told] == pytest.approx([0.4, 0.6, 0.9]), "computing does hold it"


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
    from gradmux.infra.local.errors import EmulatorError

    with pytest.raises(EmulatorError, match="at most 900"):
        EmulatorConfig(timeout_s=LONGEST_S + 1)
