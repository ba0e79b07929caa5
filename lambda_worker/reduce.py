"""Aggregation in the cloud: one slice of the parameter vector, summed over many spilled results with decode weights.

Each reducer reads only its slice of every source, so that all reducers together read each result once and the client
moves about one model instead of one result per worker. Sums are those of `summation.py`: bit for bit what the client
would get, however the vector was cut. Memory holds a few slices at a time. The CRC of a source covers the whole result:
each reducer tells that of its slice, and the client puts them together (`buffers.pieced_crc`). A source that is not
there does not end the sum: the client learns at once of all that are lost, and has them computed again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from gradmux.lambda_worker.buffers import NonFiniteResult, checksum, encode_result, item_size, read_elements
from gradmux.lambda_worker.messages import LOST, Reduction, Result, Source
from gradmux.lambda_worker.objects import MissingObject, ObjectStore
from gradmux.lambda_worker.spill import spilled
from gradmux.lambda_worker.summation import Scratch, Vector, tree_sum

__all__ = ["reduce_slice", "reduce_to_store"]

PARALLEL_READS = 8


def reduce_slice(reduction: Reduction, objects: ObjectStore, *, doubtful: bool = False) -> tuple[Vector, list[float]]:
    """(hi - lo,) the sum over sources of weight * gradient[lo:hi], float32 or float64 as they decode; their CRCs.

    Sources that are not there are not in the sum; if `doubtful`, neither are those with a NaN or an infinity, which no
    worker has put there. Raises StoreError.
    """
    dtype = np.dtype("float64" if reduction.dtype == "float64" else "float32")
    crcs: list[float] = []

    def terms() -> Iterator[tuple[Vector, float] | None]:
        for source, body in zip(reduction.sources, _bodies(reduction, objects), strict=True):
            vector = None if body is None else read_elements(body, reduction.dtype, source.scale)
            lost = body is None or vector is None or (doubtful and not np.isfinite(vector).all())
            crcs.append(LOST if lost or body is None else checksum(body))
            yield None if lost or vector is None else (vector, source.weight)
        if all(crc == LOST for crc in crcs):
            yield np.zeros(reduction.hi - reduction.lo, dtype), 0.0

    with np.errstate(over="ignore", invalid="ignore"):  # found when the sum is encoded
        total = tree_sum(terms(), Scratch(dtype, reduction.hi - reduction.lo))
    return total, crcs


def reduce_to_store(reduction: Reduction, wire: str, objects: ObjectStore) -> Result:
    """Puts the slice at `reduction.out`, in dtype `wire`; the result says where. Raises NonFiniteResult, StoreError."""
    try:
        buffer = _encoded(*reduce_slice(reduction, objects), wire)
    except NonFiniteResult:
        total, crcs = reduce_slice(reduction, objects, doubtful=True)
        if LOST not in crcs:
            raise
        buffer = _encoded(total, crcs, wire)
    objects.put(reduction.out, bytes(buffer))
    whole = Result(0, reduction.job, "ok", buffer=buffer, size=len(buffer))
    return spilled(whole, reduction.out)


def _encoded(total: Vector, crcs: list[float], wire: str) -> bytearray:
    return encode_result(total, np.array(crcs, dtype=np.float64), wire)


def _bodies(reduction: Reduction, objects: ObjectStore) -> Iterator[bytes | None]:
    """Each source's slice, in order; a bounded number of reads ahead. None: it is not there."""
    size = item_size(reduction.dtype)
    length = (reduction.hi - reduction.lo) * size

    def read(source: Source) -> bytes | None:
        start = source.offset + reduction.lo * size
        try:
            body = objects.get_range(source.key, start, start + length)
        except MissingObject:
            return None
        return body if len(body) == length else None

    with ThreadPoolExecutor(PARALLEL_READS) as pool:
        ahead: deque[Future[bytes | None]] = deque()
        for source in reduction.sources:
            ahead.append(pool.submit(read, source))
            if len(ahead) > PARALLEL_READS:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
