"""The Lambda entry point: parse, check for cancellation, compute, reply inline or through S3.

    handler(event, context) -> Worker.answer -> tasks.answer_task, one by one -> spill -> the reply

A request that breaks the contract raises (AWS reports a FunctionError with our exception's name); whatever a single
task does wrong is a failed result. Importing this module sets torch's threads and kernels, as `processor.py` has
them: redundant workers must agree to the last bit.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import torch
from msgspec.structs import replace

from gradmux.lambda_worker.buffers import NonFiniteResult
from gradmux.lambda_worker.cache import DiskCache
from gradmux.lambda_worker.contract import parse_request, reply_json
from gradmux.lambda_worker.errors import describe
from gradmux.lambda_worker.keys import early_key, kept_key, reply_key
from gradmux.lambda_worker.messages import Reduction, Reply, Request, Result, Stretch, Task
from gradmux.lambda_worker.objects import ObjectStore, StoreError
from gradmux.lambda_worker.processor import pinned_kernels, thread_count
from gradmux.lambda_worker.reduce import reduce_to_store
from gradmux.lambda_worker.s3 import S3Objects, client
from gradmux.lambda_worker.sandbox import Sandbox
from gradmux.lambda_worker.spill import spill
from gradmux.lambda_worker.stretch import Watch, answer_stretch, warm_stretch
from gradmux.lambda_worker.tasks import Bench, Stopwatch, answer_task, warm_task

__all__ = ["Worker", "handler"]

DISK_CACHE_BYTES = 384 * 2**20
"""Of AWS's smallest /tmp, 512 MB; GRADMUX_CACHE_BYTES overrides it."""
WIDEST_SECONDS = 99_999.999999
"""More digits than any time has: AWS ends an invocation after 900 s."""

for _name, _value in pinned_kernels().items():
    os.environ.setdefault(_name, _value)
torch.set_num_threads(thread_count())


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answers one invocation. Raises ContractError for a malformed request."""
    return _worker().answer(event)


class Worker:
    """One sandbox's life: answers requests one after the other and keeps what it read."""

    def __init__(
        self, open_bucket: Callable[[str], ObjectStore], directory: Path, cache_bytes: int = DISK_CACHE_BYTES
    ) -> None:
        """`directory` is the sandbox's own, for the disk cache."""
        self._open_bucket = open_bucket
        self._disk = DiskCache(directory, cache_bytes)
        self._bucket: str | None = None
        self._sandbox: Sandbox | None = None
        self._cold = True

    def answer(self, event: object) -> dict[str, Any]:
        """The reply to one request, as JSON values."""
        watch = Stopwatch()
        request = parse_request(event)
        invocation = Invocation(request, self.sandbox(request.bucket), self._cold, watch)
        self._cold = False
        return invocation.reply()

    def sandbox(self, bucket: str) -> Sandbox:
        """The sandbox's memory of this bucket; another bucket's is forgotten."""
        if self._sandbox is None or bucket != self._bucket:
            self._bucket, self._sandbox = bucket, Sandbox(self._open_bucket(bucket), self._disk)
        return self._sandbox


class Invocation:
    """One request being answered."""

    def __init__(self, request: Request, sandbox: Sandbox, cold: bool, watch: Stopwatch) -> None:
        self._request = request
        self._sandbox, self._objects = sandbox, sandbox.objects
        self._cold = cold
        self._watch = watch
        self._bench = Bench(sandbox, request.data or "", request.reply.dtype, self._watch)

    def reply(self) -> dict[str, Any]:
        answers = {"gradient": self._gradient, "steps": self._steps, "warm": self._warm, "reduce": self._reduce}
        answer = answers[self._request.op]
        document = reply_json(self._packed(answer()))
        if self._request.reply.post:
            self._objects.put(reply_key(self._request), orjson.dumps(document))
        return document

    def _gradient(self) -> list[Result]:
        """Results of all tasks, message by message; those that were answered early are not repeated."""
        results: list[Result] = []
        messages = sorted({task.message for task in self._request.tasks})
        for message in messages:
            answers = [self._answer(task) for task in self._request.tasks if task.message == message]
            early = self._request.reply.early and message != messages[-1]
            if not (early and self._post_early(message, answers)):
                results += answers
        return results

    def _answer(self, task: Task) -> Result:
        if self._is_cancelled():
            return Result(task.slot, task.job, "cancelled", message=task.message)
        return answer_task(task, self._bench)

    def _warm(self) -> list[Result]:
        """Only what failed: a worker that is warm has nothing to say."""
        tasks = [warm_task(task, self._bench) for task in self._request.tasks]
        stretches = [warm_stretch(stretch, self._bench) for stretch in self._request.stretches]
        return [result for result in (*tasks, *stretches) if result is not None]

    def _steps(self) -> list[Result]:
        """Stretch after stretch."""
        request, objects = self._request, self._objects
        watch = Watch(self._sandbox, request.cancel, request.epoch)

        def answer(stretch: Stretch) -> Result:
            def keep(step: int, snapshot: bytes) -> str:
                key = kept_key(request, stretch.slot, step, snapshot)
                objects.put(key, snapshot)
                return key

            return answer_stretch(stretch, self._bench, watch, keep)

        return [answer(stretch) for stretch in request.stretches]

    def _reduce(self) -> list[Result]:
        reduction = self._request.reduce
        assert isinstance(reduction, Reduction), "checked by parse_request"
        if self._is_cancelled():
            return [Result(0, reduction.job, "cancelled")]
        try:
            with self._watch.computing():
                return [reduce_to_store(reduction, self._request.reply.dtype, self._objects)]
        except (NonFiniteResult, StoreError) as error:
            return [Result(0, reduction.job, "failed", error=describe(error))]

    def _post_early(self, message: int, answers: list[Result]) -> bool:
        """Puts these answers to S3 as a reply of their own; False when that failed, so that they come in the reply."""
        reply = self._bare_reply(answers)
        if self._request.reply.mode == "s3":
            reply = spill(reply, self._request, self._objects)
        try:
            with self._watch.writing():
                self._objects.put(early_key(self._request, message), orjson.dumps(reply_json(reply)))
        except StoreError:
            return False
        return True

    def _packed(self, results: list[Result]) -> Reply:
        """The reply, within its limit whatever the time of writing turns out to be."""
        bare = self._bare_reply(results)
        longest = replace(bare, timing=replace(bare.timing, write_s=WIDEST_SECONDS, whole_s=WIDEST_SECONDS))
        with self._watch.writing():
            reply = spill(longest, self._request, self._objects)
        return replace(reply, timing=self._watch.timing(self._cold))

    def _bare_reply(self, results: list[Result]) -> Reply:
        request = self._request
        return Reply(
            op=request.op,
            run=request.run,
            epoch=request.epoch,
            round=request.round,
            worker=request.worker,
            attempt=request.attempt,
            results=tuple(results),
            timing=self._watch.timing(self._cold),
            cpu=cpu_model(),
        )

    def _is_cancelled(self) -> bool:
        """Whether the run's cancel marker names this epoch or a later one."""
        if self._request.cancel is None:
            return False
        with self._watch.reading():
            return self._sandbox.cancelled_epoch(self._request.cancel) >= self._request.epoch


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """The CPU's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.machine()


@lru_cache(maxsize=1)
def _worker() -> Worker:
    """This process's worker, made at its first invocation: a forked sandbox has its own TMPDIR by then."""
    torch.set_num_threads(thread_count())
    directory = Path(os.environ.get("TMPDIR", "/tmp")) / "gradmux-cache"
    cache_bytes = int(os.environ.get("GRADMUX_CACHE_BYTES", DISK_CACHE_BYTES))
    return Worker(lambda bucket: S3Objects(client(), bucket), directory, cache_bytes)
