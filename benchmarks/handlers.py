"""Handlers of emulated workers that compute nothing, for benchmarks of everything around computing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from lambda_worker.contract import Reply, Result, encode_result, parse_request, reply_json


@lru_cache
def result_of(size: int) -> bytes:
    """A result with about so many bytes of gradient."""
    elements = np.random.default_rng(0).normal(size=max(1, size // 4)).astype(np.float32)
    return encode_result(elements, np.ones(4))


def answer(event: dict[str, Any], context: object) -> dict[str, Any]:
    """A good reply whose results have as many bytes as the model's name says: `bytes/1000`."""
    request = parse_request(event)
    buffers = [(task, result_of(int(task.model.rpartition("/")[2]))) for task in request.tasks]
    results = tuple(Result(task.slot, task.job, "ok", buffer=buffer, size=len(buffer)) for task, buffer in buffers)
    return reply_json(
        Reply("gradient", request.run, request.epoch, request.round, request.worker, request.attempt, results)
    )
