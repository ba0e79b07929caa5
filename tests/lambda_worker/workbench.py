"""A bucket in memory with a data set, models and snapshots in it, and the requests that use them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.contract import (
    Order,
    Reply,
    ReplyMode,
    Request,
    Task,
    Term,
    Weights,
    encode_request,
    parse_reply,
)
from gradmux.lambda_worker.handler import Worker
from gradmux.lambda_worker.layout import Column, Layout, Manifest, encode_manifest
from gradmux.lambda_worker.models import ModelSpec, build, encode_spec
from gradmux.lambda_worker.objects import MemoryObjects
from tests.lambda_worker import factories

HERE = "tests.lambda_worker.factories:"
ROWS = 40


class Workbench:
    """Puts things into `objects` and asks `worker` for results."""

    def __init__(self, directory: Path) -> None:
        self.objects = MemoryObjects()
        self.directory = directory
        self.worker = self.new_worker()
        generator = np.random.default_rng(7)
        self.x = generator.normal(size=(ROWS, 6)).astype("f4")
        self.y = generator.integers(0, 3, size=ROWS)
        self.data = self.put_data({"x": self.x, "y": self.y})

    def new_worker(self) -> Worker:
        """Another sandbox."""
        self.sandboxes = getattr(self, "sandboxes", 0) + 1
        return Worker(lambda _: self.objects, self.directory / f"sandbox-{self.sandboxes}")

    def put(self, body: bytes) -> str:
        key = "blobs/" + hashlib.sha256(body).hexdigest()
        self.objects.put(key, body)
        return key

    def put_data(self, arrays: dict[str, NDArray[Any]]) -> str:
        manifest, objects = stored(arrays)
        self.objects.objects.update(objects)
        return self.put(encode_manifest(manifest))

    def put_model(self, factory: str = "mlp", **fields: Any) -> str:
        return self.put(encode_spec(spec(factory, **fields)))

    def put_weights(self, weights: Tensor) -> Weights:
        return Weights(key=self.put(flat.to_bytes(weights)))

    def request(self, *tasks: Task, **fields: Any) -> Request:
        plain = Request("gradient", "run", 3, 5, 2, "bucket", data=self.data, reply=ReplyMode(prefix="runs/run/"))
        return replace(plain, tasks=tasks, **fields)

    def ask(self, request: Request, worker: Worker | None = None) -> Reply:
        """Through JSON both ways, as on the wire."""
        event = orjson.loads(encode_request(request))
        return parse_reply(orjson.dumps((worker or self.worker).answer(event)))


def spec(
    factory: str = "mlp", loss: str = "cross_entropy", dtype: str = "float32", seed: int = 0, **args: Any
) -> ModelSpec:
    """A spec; the loss is one of `factories`, or torch.nn.functional's."""
    return ModelSpec(HERE + factory, args, HERE + loss if hasattr(factories, loss) else loss, dtype, seed)


def initial(factory: str = "mlp", seed: int = 0, **fields: Any) -> Tensor:
    """A snapshot of the model as its factory makes it under this seed."""
    return flat.snapshot(build(spec(factory, seed=seed, **fields)).module)


ORDER = Order(ROWS, ROWS, shuffle=False)
"""All rows in one batch, in their own order; cut into passes of a row each, pass i is row i."""


def spans(*edges: int, coefficients: Sequence[float] | None = None) -> tuple[Term, ...]:
    """Rows [edges[0], edges[1]), [edges[1], edges[2]), ... of the batch that `ORDER` makes."""
    pairs = list(pairwise(edges))
    factors = coefficients or [1.0] * len(pairs)
    return tuple(Term(lo, hi, factor) for (lo, hi), factor in zip(pairs, factors, strict=True))


def stored(arrays: dict[str, NDArray[Any]], shard_rows: int = 16) -> tuple[Manifest, dict[str, bytes]]:
    """Arrays as shards, written the plain way: what `docs/data.md` says, apart from the code that packs."""
    rows = len(next(iter(arrays.values())))
    columns = tuple(Column(name, str(array.dtype), array.shape[1:]) for name, array in arrays.items())
    objects, digests = {}, []
    for lo in range(0, rows, shard_rows):
        parts = [
            array[lo : lo + shard_rows].astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays.values()
        ]
        shard = b"".join(part + bytes(-len(part) % 64) for part in parts)
        digests.append(hashlib.sha256(shard).hexdigest())
        objects[f"data/{digests[-1]}"] = shard
    return Manifest(Layout(rows, shard_rows, columns), tuple(digests), "data/"), objects
