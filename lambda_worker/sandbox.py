"""What one sandbox keeps between invocations: models, snapshots, data sets, each read once per content key.

Knows the store and the caches, not requests or replies. Read `tasks.py` next.
"""

from __future__ import annotations

from torch import Tensor

from lambda_worker import flat
from lambda_worker.cache import DiskCache, MemoryCache
from lambda_worker.data import Dataset, parse_manifest
from lambda_worker.messages import Weights
from lambda_worker.models import Model, build, parse_spec
from lambda_worker.objects import ObjectStore

__all__ = ["Sandbox"]

MODELS = 16
SNAPSHOTS = 8
SNAPSHOT_BYTES = 256 * 2**20
DATASETS = 4


class Sandbox:
    """Models, snapshots and data sets of one bucket."""

    def __init__(self, objects: ObjectStore, disk: DiskCache) -> None:
        self.objects = objects
        self._disk = disk
        self._models: MemoryCache[Model] = MemoryCache(MODELS)
        self._snapshots: MemoryCache[Tensor] = MemoryCache(SNAPSHOTS, SNAPSHOT_BYTES)
        self._datasets: MemoryCache[Dataset] = MemoryCache(DATASETS)

    def model(self, key: str) -> Model:
        """The model of a spec. The factory's exceptions pass through."""
        return self._models.get(key, lambda: (build(parse_spec(self.objects.get(key))), 0))

    def snapshot(self, weights: Weights, model: Model) -> Tensor:
        """The flat vector that the weights refer to, in the model's dtype."""
        dtype = str(model.dtype).removeprefix("torch.")
        if weights.inline is not None:
            return flat.from_bytes(weights.inline, dtype)
        key = weights.key or ""

        def read() -> tuple[Tensor, int]:
            raw = self.objects.get(key)
            return flat.from_bytes(raw, dtype), len(raw)

        return self._snapshots.get((key, dtype), read)

    def dataset(self, key: str) -> Dataset:
        """The data set of a manifest."""
        return self._datasets.get(
            key, lambda: (Dataset(parse_manifest(self.objects.get(key)), self.objects, self._disk), 0)
        )
