"""Aggregation in the cloud: one slice of the parameter vector, summed over many spilled results with decode weights.

Each reducer reads only its slice of every source, so that all reducers together read each result once and the client
moves about one model instead of one result per worker. Sums are float64 and in the order of the sources; their bits do
not depend on how the vector was cut. Memory holds a few slices at a time. The CRC of a source covers the whole result,
so a part of it cannot be checked by it: the transport has to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from lambda_worker.buffers import encode_result, item_size, read_elements
from lambda_worker.messages import Reduction, Result, Source
from lambda_worker.objects import ObjectStore
from lambda_worker.spill import spilled

__all__ = ["reduce_slice", "reduce_to_store"]

PARALLEL_READS = 8


def reduce_slice(reduction: Reduction, objects: ObjectStore) -> Tensor:
    """(hi - lo,) float64: sum over sources of weight * gradient[lo:hi]."""
    total = torch.zeros(reduction.hi - reduction.lo, dtype=torch.float64)
    bodies = _bodies(reduction, objects)
    for source, body in zip(reduction.sources, bodies, strict=True):
        elements = read_elements(body, reduction.dtype, source.scale)
        # Not add_(alpha=...): it fuses multiply and add only where its vector loop runs, so that the last bit of an
        # element would depend on where the slices were cut.
        total.add_(torch.from_numpy(elements.astype("f8")).mul_(source.weight))
    return total


def reduce_to_store(reduction: Reduction, wire: str, objects: ObjectStore) -> Result:
    """Puts the slice at `reduction.out`, in dtype `wire`; the result says where. Raises NonFiniteResult, StoreError."""
    buffer = encode_result(reduce_slice(reduction, objects), torch.empty(0, dtype=torch.float64), wire)
    objects.put(reduction.out, buffer)
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
