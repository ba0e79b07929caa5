"""Handlers of emulated workers that compute nothing, for benchmarks of everything around computing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gradmux.lambda_worker.contract import Reply, Result, encode_result, reply_json


@lru_cache
def reply_of(size: int) -> dict[str, Any]:
    """A good reply to somebody, with about so many bytes of gradient."""
    elements = np.random.default_rng(0).normal(size=max(1, size // 4)).astype(np.float32)
    buffer = encode_result(elements, np.ones(4))
    return reply_json(Reply("gradient", "any", 0, 0, 0, 1, (Result(0, 0, "ok", buffer=buffer, size=len(buffer)),)))


def answer(event: dict[str, Any], context: object) -> dict[str, Any]:
    """A good reply, whose result has as many bytes as the model's name says: `bytes/1000`."""
    size = int(event["tasks"][0]["model"].rpartition("/")[2])
    return reply_of(size) | {name: event[name] for name in ("run", "epoch", "round", "worker", "attempt")}
