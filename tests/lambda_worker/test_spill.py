"""Inline or through S3: the sum of all slots counts, the largest go first."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradmux.lambda_worker.contract import (
    MAX_REPLY_BYTES,
    Reply,
    ReplyMode,
    Request,
    Result,
    base64_size,
    decode_result,
    encode_result,
    encoded_size,
    reply_json,
    result_key,
    result_size,
)
from gradmux.lambda_worker.objects import MemoryObjects, StoreError
from gradmux.lambda_worker.spill import spill

MEGA = 10**6


class FullStore(MemoryObjects):
    """Takes nothing."""

    def put(self, key: str, body: bytes) -> None:
        raise StoreError(f"{key}: quota exceeded")


def result(slot: int, parameters: int) -> Result:
    raw = encode_result(np.full(parameters, slot + 1.0, dtype="f4"), np.arange(4.0) + slot)
    return Result(slot, 1, "ok", buffer=raw, size=len(raw))


def reply(*results: Result, cpu: str = "x") -> Reply:
    return Reply("gradient", "run", 0, 1, 2, 1, results, cpu=cpu)


def request(mode: str = "auto", max_inline: int = MAX_REPLY_BYTES) -> Request:
    return Request("gradient", "run", 0, 1, 2, "bucket", reply=ReplyMode(mode, prefix="p/", max_inline=max_inline))


def inline(answer: Reply) -> list[int]:
    return [each.slot for each in answer.results if each.buffer is not None]


def test_small_replies_stay_inline() -> None:
    whole = reply(result(0, 10), result(1, 20))
    objects = MemoryObjects()
    assert spill(whole, request(), objects) == whole
    assert not objects.objects


def test_the_largest_goes_first_until_the_sum_fits() -> None:
    objects = MemoryObjects()
    answer = spill(
        reply(*(result(slot, size) for slot, size in enumerate((300_000, 900_000, 700_000)))), request(), objects
    )
    assert inline(answer) == [0, 2]
    moved = answer.results[1]
    assert moved.key == result_key(request(), 1)
    gradient, sums, _ = decode_result(objects.objects[moved.key])
    assert gradient[0] == 2.0
    assert moved.sums == tuple(sums)
    assert moved.size == len(objects.objects[moved.key])
    elements = objects.objects[moved.key][moved.offset :]
    assert np.array_equal(np.frombuffer(elements, "<f4"), gradient)
    assert len(json.dumps(reply_json(answer))) <= MAX_REPLY_BYTES


@pytest.mark.parametrize(("beyond", "left"), [(-1, [0, 1, 2]), (0, [0, 1, 2]), (1, [0, 2])])
def test_at_awss_limit_one_byte_decides(beyond: int, left: list[int]) -> None:
    """Three slots whose encoded reply is 6,291,556 bytes, one less, one more."""
    fixed = result_size(0, 4, "float32")
    sizes = [300_000, 500_000, 300_000]
    spare = MAX_REPLY_BYTES - encoded_size(reply(*(Result(s, 1, "ok", buffer=bytearray(), size=0) for s in range(3))))
    sizes[1] = (spare - 1000 - 2 * base64_size(fixed + 4 * 300_000)) // 4 * 3 // 4 - fixed // 4
    results = tuple(result(slot, size) for slot, size in enumerate(sizes))
    padding = MAX_REPLY_BYTES + beyond - encoded_size(reply(*results))
    exact = reply(*results, cpu="x" * (1 + padding))
    assert len(json.dumps(reply_json(exact))) == MAX_REPLY_BYTES + beyond
    assert inline(spill(exact, request(), MemoryObjects())) == left


def test_the_requests_own_limit_counts_too() -> None:
    answer = spill(reply(result(0, 100), result(1, 10)), request(max_inline=800), MemoryObjects())
    assert inline(answer) == [1]
    assert inline(spill(reply(result(0, 100)), request(max_inline=0), MemoryObjects())) == []


def test_mode_s3_moves_everything() -> None:
    objects = MemoryObjects()
    assert inline(spill(reply(result(0, 1), result(1, 1)), request("s3"), objects)) == []
    assert len(objects.objects) == 2


def test_mode_inline_fails_what_does_not_fit_and_keeps_the_rest() -> None:
    objects = MemoryObjects()
    answer = spill(reply(result(0, 2 * MEGA), result(1, 10)), request("inline"), objects)
    assert inline(answer) == [1]
    assert answer.results[0].status == "failed"
    assert (answer.results[0].error or "").startswith("ReplyTooLarge: a result of 8000072 bytes")
    assert not objects.objects


def test_a_store_that_refuses_fails_that_result_only() -> None:
    answer = spill(reply(result(0, 2 * MEGA), result(1, 10)), request(), FullStore())
    assert [each.status for each in answer.results] == ["failed", "ok"]
    assert "quota exceeded" in (answer.results[0].error or "")
