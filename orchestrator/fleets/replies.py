"""What came back over HTTP -> what it means: an Arrival, or that the call may be repeated.

Lambda reports in three places: the status (was the call taken?), X-Amz-Function-Error (did the function end well?) and
the reply itself (did each task?). All of it ends here as `Outcome` and one error text. Knows no HTTP client.
Read next: `refusals.py`, `lambda_fleet.py`.
"""

from __future__ import annotations

import base64
import contextlib
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from gradmux.lambda_worker.contract import (
    ContractError,
    Reply,
    Result,
    VersionError,
    decode_result,
    gradient_offset,
    parse_reply,
    stem,
)
from gradmux.orchestrator.errors import GradmuxError, PreflightError
from gradmux.orchestrator.fleets.refusals import Verdict, told, verdict_on
from gradmux.orchestrator.ports import UNREADABLE, Arrival, Invocation, Outcome, Store
from gradmux.orchestrator.store import Keys
from gradmux.orchestrator.strangers import is_page, told_of
from gradmux.orchestrator.training.gradients import CodedResult
from gradmux.orchestrator.training.stored import Shelf, StoredResult
from gradmux.orchestrator.training.stretches import StretchResult

REMOVED_AT_ONCE = 64
STACK_LINES = 8
LOG_LINES = 6
LAMBDAS_LINES = ("START RequestId", "END RequestId", "REPORT RequestId", "INIT_START")
LAMBDAS_HEADERS = {"x-amz-executed-version", "x-amz-function-error", "x-amz-log-result"}
"""A web page with one of these was written by the function."""
REPORT_CHARACTERS = 2048
"""of base64: the report is the last line of the log, and shorter than this; a multiple of 4"""
JSON_REPORT = "platform.report"
REPORT = re.compile(
    r"Duration: ([\d.]+) ms\s+Billed Duration: ([\d.]+) ms\s+Memory Size: (\d+) MB\s+Max Memory Used: (\d+) MB"
    r"(?:\s+Init Duration: ([\d.]+) ms)?"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one POST came to."""

    verdict: Verdict
    reason: str = ""
    """one line, unless answered"""
    body: bytes | bytearray = b""
    function_error: bool = False
    """the function failed; the body says how"""
    log_result: str = ""
    """base64 of the log's last 4 KB"""
    wait_s: float = 0.0
    """how long the server wants to be left alone (Retry-After)"""

    @classmethod
    def from_http(cls, status: int, headers: Mapping[str, str], body: bytes | bytearray) -> Answer:
        """Reads status and headers (named in lower case)."""
        if status < 300 and (LAMBDAS_HEADERS & headers.keys() or not is_page(headers, body)):
            failed = "x-amz-function-error" in headers
            return cls(Verdict.ANSWERED, "", body, failed, headers.get("x-amz-log-result", ""))
        if name := headers.get("x-amzn-errortype", "").partition(":")[0]:
            return cls.refused(status, name, *_message(body), wait_s=retry_after_s(headers))
        return cls.foreign(status, headers, body)

    @classmethod
    def refused(cls, status: int, name: str, message: str, reason: str = "", wait_s: float = 0.0) -> Answer:
        """An error of the Lambda API itself: the function did not run. `reason` is the one that 429s give."""
        return cls(verdict_on(status, name, comes_again=wait_s > 0), told(name, message, reason), wait_s=wait_s)

    @classmethod
    def foreign(cls, status: int, headers: Mapping[str, str], body: bytes | bytearray) -> Answer:
        """What is not Lambda's own: an error without Lambda's name for it, a redirection, a web page."""
        wait_s = retry_after_s(headers)
        if _json(body):  # another make of the API, with no header for the name
            text = told(f"HTTP {status}", *_message(body))
        else:
            text = told_of(status, headers, body, "Lambda's answer")
        return cls(verdict_on(status, "", comes_again=wait_s > 0), text, wait_s=wait_s)

    @classmethod
    def silent(cls, limit_s: float) -> Answer:
        """Nothing came for so long."""
        return cls(Verdict.SILENT, f"no answer within {limit_s:g} s, longer than the function may take")


@dataclass(frozen=True, slots=True)
class Report:
    """Lambda's own account of one invocation, from the tail of its log."""

    duration_s: float = 0.0
    billed_s: float = 0.0
    memory_mb: int = 0
    max_memory_mb: int = 0
    cold: bool = False

    @classmethod
    def of(cls, log_result: str) -> Report:
        """Zeros where there is no report."""
        if not log_result:
            return NO_REPORT
        tail = _decoded(log_result[-REPORT_CHARACTERS:])
        found = REPORT.search(tail, max(0, tail.rfind("REPORT RequestId")))
        if found is None:
            return cls._of_json(tail)
        duration, billed, memory, used, init = found.groups()
        return cls(float(duration) / 1e3, float(billed) / 1e3, int(memory), int(used), init is not None)

    @classmethod
    def _of_json(cls, tail: str) -> Report:
        """From the last `platform.report` of a log in JSON: what a function's LoggingConfig may ask for."""
        for line in reversed(tail.splitlines()):
            if JSON_REPORT in line and isinstance(record := _json(line).get("record"), dict):
                metrics = record.get("metrics")
                return cls._measured(metrics if isinstance(metrics, dict) else {})
        return cls()

    @classmethod
    def _measured(cls, metrics: Mapping[str, Any]) -> Report:
        def number(name: str) -> float:
            value = metrics.get(name)
            return float(value) if isinstance(value, int | float) else 0.0

        return cls(
            duration_s=number("durationMs") / 1e3,
            billed_s=number("billedDurationMs") / 1e3,
            memory_mb=int(number("memorySizeMB")),
            max_memory_mb=int(number("maxMemoryUsedMB")),
            cold="initDurationMs" in metrics,
        )


NO_REPORT = Report()


class ReplyReader:
    """Turns the answers of one run's invocations into arrivals. Their `at_s` is left to the inbox."""

    def __init__(self, run: str, store: Store, shelf: Shelf | None = None) -> None:
        """`store` is where workers put results that do not fit into their replies.

        With a `shelf` results stay there, as `StoredResult`s; otherwise they are fetched, and removed some time.
        """
        self._run, self._store, self._shelf = run, store, shelf
        self._fetched: list[str] = []
        """what can be removed; appended to and emptied by any thread"""
        self.cpus: set[str] = set()
        """models of the processors that answered"""

    def read(self, call: Invocation, answer: Answer) -> Arrival:
        """What came of the invocation: `parse` and `finish`. Raises PreflightError as `parse` does."""
        reply = self.parse(call, answer)
        return reply if isinstance(reply, Arrival) else self.finish(call, reply, answer.log_result)

    def parse(self, call: Invocation, answer: Answer) -> Reply | Arrival:
        """The reply, or why there is none. Raises PreflightError when the worker speaks another contract version."""
        if answer.function_error:
            report = Report.of(answer.log_result)
            return ended(call, *_function_failure(answer, report), report)
        try:
            reply = parse_reply(answer.body)
            self._check_identity(call, reply)
            self._check_results(call, reply)
            self.cpus.add(reply.cpu)
        except VersionError as error:
            raise PreflightError(str(error)) from error
        except ContractError as error:
            return ended(call, Outcome.FAILED, f"{UNREADABLE}{error}", Report.of(answer.log_result))
        return reply

    def finish(self, call: Invocation, reply: Reply, log_result: str) -> Arrival:
        """The arrival with its results: decoded, checked by CRC, fetched where they were spilled."""
        results: dict[int, CodedResult | StoredResult | StretchResult] = {}
        skipped: list[int] = []
        troubles: list[str] = []
        for result in reply.results:
            if result.status == "ok":
                try:
                    results[result.slot] = self._decode(call, result)
                except (ContractError, FileNotFoundError) as error:
                    troubles.append(str(error))
            elif result.status == "skipped":
                skipped.append(result.slot)
            elif result.status == "failed":
                troubles.append(result.error or "failed")
        outcome = _outcome(reply, bool(results or skipped), bool(troubles))
        if outcome is Outcome.FAILED and not troubles:
            troubles.append(f"{UNREADABLE}no result of any task")
        report, timing = Report.of(log_result), reply.timing
        handled_s = max(timing.whole_s, timing.compute_s + timing.read_s + timing.write_s)
        return Arrival(
            round=call.round,
            worker=call.worker,
            attempt=call.attempt,
            at_s=0.0,
            outcome=outcome,
            slots=tuple(sorted([*results, *skipped])),
            results=results,
            skipped=tuple(skipped),
            billed_s=report.billed_s or math.ceil(1e3 * handled_s) / 1e3,
            worker_s=report.duration_s or handled_s,
            cold=report.cold or timing.cold,
            error=troubles[0] if troubles else "",
            epoch=call.epoch,
        )

    def _decode(self, call: Invocation, result: Result) -> CodedResult | StoredResult | StretchResult:
        if result.stretch is not None:
            return StretchResult.of(result)
        if result.buffer is not None:
            return CodedResult(*decode_result(result.buffer))
        assert result.key is not None, "checked by parse_reply"
        if self._shelf is not None:
            if call.slots:  # those of sums are known to the one who wants them
                self._shelf.note(result.job, result.key)
            return StoredResult.of(result, call)
        fetched = CodedResult(*decode_result(self._store.view(result.key)))
        self._remove(result.key)
        return fetched

    def _remove(self, key: str) -> None:
        """Now and then one request removes what was fetched; the end of the run removes the rest."""
        self._fetched.append(key)
        if len(self._fetched) >= REMOVED_AT_ONCE:
            fetched, self._fetched = self._fetched, []
            with contextlib.suppress(GradmuxError):
                self._store.delete(fetched)

    def _check_identity(self, call: Invocation, reply: Reply) -> None:
        """Raises ContractError when the reply answers another invocation, or one of another life of the run."""
        got = (reply.run, reply.epoch, reply.round, reply.worker, reply.attempt)
        wanted = (self._run, call.epoch, call.round, call.worker, call.attempt)
        if got != wanted:
            raise ContractError(f"answers (run, epoch, round, worker, attempt) = {got}, asked was {wanted}")

    def _check_results(self, call: Invocation, reply: Reply) -> None:
        """Raises ContractError when a result is of a task that was not asked for, or lies where none was to be put."""
        if reply.op not in ("gradient", "steps"):
            return
        seen: set[int] = set()
        for result in reply.results:
            task = call.slots[result.slot] if result.slot < len(call.slots) else None
            if task is None or task.job != result.job or result.slot in seen:
                raise ContractError(f"slot {result.slot} for job {result.job} was not asked for, or comes twice")
            seen.add(result.slot)
            if result.key is not None:
                self._check_place(call, result)

    def _check_place(self, call: Invocation, result: Result) -> None:
        """Raises ContractError unless the key is the one under which a worker puts this result."""
        assert result.key is not None
        keys, found = Keys(self._run), result.key
        prefixes = (keys.spill(call.round, call.worker), keys.mail(call.epoch, call.round))
        stems = [stem(prefix, call.epoch, call.round, call.worker, call.attempt) for prefix in prefixes]
        names = [f"{each}/{result.slot}" for each in stems]
        if result.stretch is not None:  # its key goes on with what it holds
            found = found.rpartition("-")[0]
        if found not in names:
            raise ContractError(f"slot {result.slot} lies at {result.key}, which is not where it was to be put")
        if result.stretch is None and result.offset != gradient_offset(len(result.sums or ()), result.buffers):
            raise ContractError(f"slot {result.slot}: its gradient cannot begin at byte {result.offset}")


def ended(call: Invocation, outcome: Outcome, error: str, report: Report | None = None) -> Arrival:
    """The arrival of an invocation without results."""
    report = report or NO_REPORT
    return Arrival(
        round=call.round,
        worker=call.worker,
        attempt=call.attempt,
        at_s=0.0,
        outcome=outcome,
        billed_s=report.billed_s,
        worker_s=report.duration_s,
        cold=report.cold,
        error=error,
        epoch=call.epoch,
    )


def _outcome(reply: Reply, any_good: bool, any_bad: bool) -> Outcome:
    """OK when anything came of it: what is missing is missing."""
    if any_good or reply.op == "warm":
        return Outcome.OK if any_good or not any_bad else Outcome.FAILED
    cancelled = any(result.status == "cancelled" for result in reply.results)
    return Outcome.CANCELLED if cancelled and not any_bad else Outcome.FAILED


def retry_after_s(headers: Mapping[str, str]) -> float:
    """The header of that name, in seconds or as a date (RFC 9110, 10.2.3); 0 where there is none that can be read."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        until = parsedate_to_datetime(value).timestamp()
        now = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else time.time()
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, until - now)


def _message(body: bytes | bytearray) -> tuple[str, str]:
    """The text of an API error, and its reason where it gives one."""
    document = _json(body)
    text = document.get("message") or document.get("Message")
    return _one_line(text or body[:200].decode("utf-8", "replace")), _one_line(document.get("Reason") or "")


def _one_line(text: Any) -> str:
    return " ".join(str(text).split())


def _function_failure(answer: Answer, report: Report) -> tuple[Outcome, str]:
    """What a function error was. Raises PreflightError when the worker refused our contract version."""
    document = _json(answer.body)
    kind, message = str(document.get("errorType", "")), str(document.get("errorMessage", "")).strip()
    if kind == VersionError.__name__:
        raise PreflightError(message)
    text = f"{kind}: {message}" if kind else message or "function error"
    stack = document.get("stackTrace")
    lines = [str(line).rstrip() for line in stack] if isinstance(stack, list) else _own_log(answer.log_result)
    outcome = _failure_kind(kind, message, report)
    return outcome, "\n".join([text + _remedy(outcome, report), *lines[-STACK_LINES:]])


def _remedy(outcome: Outcome, report: Report) -> str:
    """What can be done where the worker itself had too little of something."""
    if outcome is Outcome.TIMED_OUT:
        return "; allow more time (cluster.timeout_s; on AWS `gradmux deploy --timeout`), or use more workers"
    if outcome is not Outcome.OUT_OF_MEMORY:
        return ""
    took = f"it took {report.max_memory_mb} of its {report.memory_mb} MB" if report.memory_mb else "out of memory"
    return f"; {took}: give it more (cluster.memory_mb; on AWS `gradmux deploy --memory`), or smaller batches"


def _failure_kind(kind: str, message: str, report: Report) -> Outcome:
    if kind == "Sandbox.Timedout" or "Task timed out after" in message:
        return Outcome.TIMED_OUT
    full = report.max_memory_mb >= report.memory_mb  # also when there is no report
    if kind in ("Runtime.OutOfMemory", "MemoryError") or ("signal: killed" in message and full):
        return Outcome.OUT_OF_MEMORY
    return Outcome.CRASHED if kind == "Runtime.ExitError" else Outcome.FAILED


def _own_log(log_result: str) -> list[str]:
    """The function's own last lines."""
    lines = [_said(line) for line in _decoded(log_result).splitlines()]
    return [line for line in lines if line.strip() and not line.startswith(LAMBDAS_LINES)][-LOG_LINES:]


def _said(line: str) -> str:
    """What a line of a log says: of one in JSON its message, of Lambda's own records nothing."""
    document = _json(line) if line.startswith("{") else {}
    if str(document.get("type", "")).startswith("platform."):
        return ""
    message = document.get("message")
    return _one_line(message) if isinstance(message, str) else line


def _decoded(log_result: str) -> str:
    return base64.b64decode(log_result).decode("utf-8", "replace")


def _json(body: bytes | bytearray | str) -> Mapping[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}
