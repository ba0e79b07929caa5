"""Aggregation in the cloud: one slice of the parameter vector, summed over many spilled results with decode weights.

Each reducer reads only its slice of every source, so that all reducers together read each result once and the client
moves about one model instead of one result per worker. Sums are those of `summation.py`: bit for bit what the client
would get, however the vector was cut. Memory holds a few slices at a time. The CRC of a source covers the whole result,
so a part of it cannot be checked by it: the transport has to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from gradmux.lambda_worker.buffers import encode_result, item_size, read_elements
from gradmux.lambda_worker.messages import Reduction, Result, Source
from gradmux.lambda_worker.objects import ObjectStore
from gradmux.lambda_worker.spill import spilled
from gradmux.lambda_worker.summation import Scratch, Vector, tree_sum

__all__ = ["reduce_slice", "reduce_to_store"]

PARALLEL_READS = 8


def reduce_slice(reduction: Reduction, objects: ObjectStore) -> Vector:
    """(hi - lo,) the sum over sources of weight * gradient[lo:hi], float32 or float64 as they decode."""
    dtype = np.dtype("float64" if reduction.dtype == "float64" else "float32")
    bodies = zip(reduction.sources, _bodies(reduction, objects), strict=True)
    terms = ((read_elements(body, reduction.dtype, source.scale), source.weight) for source, body in bodies)
    with np.errstate(over="ignore", invalid="ignore"):  # found when the sum is encoded
        return tree_sum(terms, Scratch(dtype, reduction.hi - reduction.lo))


def reduce_to_store(reduction: Reduction, wire: str, objects: ObjectStore) -> Result:
    """Puts the slice at `reduction.out`, in dtype `wire`; the result says where. Raises NonFiniteResult, StoreError."""
    buffer = encode_result(reduce_slice(reduction, objects), torch.empty(0, dtype=torch.float64), wire)
    objects.put(reduction.out, bytes(buffer))
    whole = Result(0, reduction.job, "ok", buffer=buffer, size=len(buffer))
    return spilled(whole, reduction.out)


def _bodies(reduction: Reduction, objects: ObjectStore) -> Iterator[bytes]:
    """Each source's slice, in order; a bounded number of reads ahead."""
    size = item_size(reduction.dtype)

    def read(source: Source) -> bytes:
        return objects.get_range(source.key, source.offset + reduction.lo * size, source.offset + reduction.hi * size)

    with ThreadPoolExecutor(PARALLEL_READS) as pool:
        ahead: deque[Future[bytes]] = deque()
        for source in reduction.sources:
            ahead.append(pool.submit(read, source))
            if len(ahead) > PARALLEL_READS:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
