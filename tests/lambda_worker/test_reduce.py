"""Aggregation in the cloud against decoding everything here."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import orjson
import pytest
from msgspec.structs import replace

from gradmux.lambda_worker.buffers import NO_BUFFERS, item_size, pieced_crc, result_head
from gradmux.lambda_worker.contract import (
    LOST,
    ContractError,
    Reduction,
    ReplyMode,
    Request,
    Source,
    cancel_marker,
    decode_result,
    encode_result,
    parse_request,
    request_json,
)
from gradmux.lambda_worker.reduce import reduce_slice
from gradmux.orchestrator.training.gradients import CodedResult, combine
from tests.lambda_worker.workbench import Workbench

COUNT, WORKERS = 1000, 21


def put_results(
    bench: Workbench, dtype: str, binary: bool = False
) -> tuple[list[tuple[CodedResult, float]], tuple[Source, ...]]:
    """Spilled results: the terms that they decode to, and sources. Weights are 1 or random."""
    generator = np.random.default_rng(3)
    terms, sources = [], []
    for worker in range(WORKERS):
        raw = encode_result(generator.normal(size=COUNT) * 1e-3, np.ones(5), dtype)
        bench.objects.put(f"spilled/{worker}", raw)
        head = result_head(raw)
        weight = 1.0 if binary else float(generator.normal())
        terms.append((CodedResult(*decode_result(raw)), weight))
        sources.append(Source(f"spilled/{worker}", weight, head.offset, head.scale))
    return terms, tuple(sources)


def request(bench: Workbench, reduction: Reduction, wire: str = "float64") -> Request:
    return bench.request(op="reduce", data=None, reduce=reduction, reply=ReplyMode(prefix="p/", dtype=wire))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("binary", [True, False])
def test_slices_equal_the_clients_own_sum_bit_for_bit(bench: Workbench, dtype: str, binary: bool) -> None:
    terms, sources = put_results(bench, dtype, binary)
    expected = combine(terms).gradient
    wire = "float64" if dtype == "float64" else "float32"
    edges = [0, 1, 333, 999, COUNT]
    slices, pieces = [], []
    for lo, hi in pairwise(edges):
        reply = bench.ask(request(bench, Reduction(7, sources, lo, hi, f"out/{lo}", dtype), wire))
        (result,) = reply.results
        assert (result.status, result.job, result.key) == ("ok", 7, f"out/{lo}")
        raw = bench.objects.objects[f"out/{lo}"]
        assert len(raw) == result.size
        slices.append(decode_result(raw)[0])
        pieces.append(decode_result(raw)[1])
    assert np.concatenate(slices).dtype == expected.dtype == wire
    assert np.array_equal(np.concatenate(slices), expected)
    sizes = [(hi - lo) * item_size(dtype) for lo, hi in pairwise(edges)]
    for source, *crcs in zip(sources, *pieces, strict=True):
        head = result_head(bench.objects.objects[source.key])
        whole = pieced_crc(dtype, head.scale, np.array(head.sums), NO_BUFFERS, zip(map(int, crcs), sizes, strict=True))
        assert whole == head.crc


def test_only_the_slice_is_read(bench: Workbench) -> None:
    _, sources = put_results(bench, "float32")
    bench.objects.reads.clear()
    reduce_slice(Reduction(0, sources, 100, 150, "out"), bench.objects)
    assert sum(hi - lo for _, lo, hi in bench.objects.reads) == WORKERS * 50 * 4


def test_trouble_is_a_failed_result(bench: Workbench) -> None:
    _, sources = put_results(bench, "float32")
    huge = tuple(source._replace(weight=1e308) for source in sources)
    (result,) = bench.ask(request(bench, Reduction(0, huge, 0, 9, "out"), wire="float32")).results
    assert result.status == "failed"
    assert (result.error or "").startswith("NonFiniteResult")
    assert "out" not in bench.objects.objects


@pytest.mark.parametrize("damage", ["gone", "short", "not finite"])
@pytest.mark.parametrize("all_of_them", [False, True])
def test_sources_that_are_lost_are_told_all_at_once(bench: Workbench, damage: str, all_of_them: bool) -> None:
    terms, sources = put_results(bench, "float32")
    lost = range(WORKERS) if all_of_them else (0, 7, 8, 20)
    for index in lost:
        body = bytearray(bench.objects.objects[sources[index].key])
        if damage == "gone":
            del bench.objects.objects[sources[index].key]
        elif damage == "short":
            bench.objects.put(sources[index].key, body[: sources[index].offset + 7])
        else:
            body[sources[index].offset + 4 : sources[index].offset + 8] = np.float32(np.nan).tobytes()
            bench.objects.put(sources[index].key, body)
    (result,) = bench.ask(request(bench, Reduction(0, sources, 0, 9, "out"), wire="float32")).results
    assert [index for index, crc in enumerate(result.sums or ()) if crc == LOST] == list(lost)
    rest = [term for index, term in enumerate(terms) if index not in lost]
    summed = decode_result(bench.objects.objects["out"]).gradient
    np.testing.assert_allclose(summed, combine(rest).gradient[:9] if rest else np.zeros(9), rtol=1e-4, atol=1e-9)


def test_a_cancelled_reduction_reads_nothing(bench: Workbench) -> None:
    _, sources = put_results(bench, "float32")
    bench.objects.put("cancel", cancel_marker(3))
    wanted = replace(request(bench, Reduction(0, sources, 0, 9, "out")), cancel="cancel")
    bench.objects.reads.clear()
    (result,) = bench.ask(wanted).results
    assert result.status == "cancelled"
    assert [key for key, _, _ in bench.objects.reads] == ["cancel"]


def test_the_request_is_held_to_its_form(bench: Workbench) -> None:
    document = request_json(request(bench, Reduction(0, (Source("k", 1.0, 64),), 0, 9, "out")))
    assert parse_request(document).reduce is not None
    for damage in ({"lo": 9}, {"sources": []}, {"dtype": "int8"}, {"out": ""}, {"weights": []}):
        with pytest.raises(ContractError):
            parse_request(document | {"reduce": document["reduce"] | damage})
    with pytest.raises(ContractError, match="for op 'reduce' alone"):
        parse_request(document | {"op": "gradient"})
    with pytest.raises(ContractError, match="for op 'reduce' alone"):
        parse_request(orjson.loads(orjson.dumps(document | {"reduce": None})))
