"""Aggregation in the cloud against decoding everything here."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import orjson
import pytest
from msgspec.structs import replace

from gradmux.lambda_worker.buffers import result_head
from gradmux.lambda_worker.contract import (
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
        _, offset, scale, _ = result_head(raw)
        weight = 1.0 if binary else float(generator.normal())
        terms.append((CodedResult(*decode_result(raw)), weight))
        sources.append(Source(f"spilled/{worker}", weight, offset, scale))
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
    slices = []
    for lo, hi in pairwise(edges):
        reply = bench.ask(request(bench, Reduction(7, sources, lo, hi, f"out/{lo}", dtype), wire))
        (result,) = reply.results
        assert (result.status, result.job, result.key, result.sums) == ("ok", 7, f"out/{lo}", ())
        raw = bench.objects.objects[f"out/{lo}"]
        assert len(raw) == result.size
        slices.append(decode_result(raw)[0])
    assert np.concatenate(slices).dtype == expected.dtype == wire
    assert np.array_equal(np.concatenate(slices), expected)


def test_only_the_slice_is_read(bench: Workbench) -> None:
    _, sources = put_results(bench, "float32")
    bench.objects.reads.clear()
    reduce_slice(Reduction(0, sources, 100, 150, "out"), bench.objects)
    assert sum(hi - lo for _, lo, hi in bench.objects.reads) == WORKERS * 50 * 4


def test_trouble_is_a_failed_result(bench: Workbench) -> None:
    _, sources = put_results(bench, "float32")
    gone = (sources[0]._replace(key="gone"), *sources[1:])
    beyond = Reduction(0, sources, 990, 2000, "out")
    huge = tuple(source._replace(weight=1e308) for source in sources)
    for reduction, name in (
        (Reduction(0, gone, 0, 9, "out"), "MissingObject"),
        (beyond, "StoreError"),
        (Reduction(0, huge, 0, 9, "out"), "NonFiniteResult"),
    ):
        (result,) = bench.ask(request(bench, reduction, wire="float32")).results
        assert result.status == "failed"
        assert (result.error or "").startswith(name)
    assert "out" not in bench.objects.objects


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
