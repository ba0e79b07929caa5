"""What one sandbox keeps between invocations: models, snapshots, data sets, each read once per content key.

Knows the store and the caches, not requests or replies. Read `tasks.py` next.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from torch import Tensor

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.cache import DiskCache, MemoryCache
from gradmux.lambda_worker.data import Dataset
from gradmux.lambda_worker.digests import checked
from gradmux.lambda_worker.keys import cancelled_epoch
from gradmux.lambda_worker.layout import parse_manifest
from gradmux.lambda_worker.messages import Order, Weights
from gradmux.lambda_worker.models import Model, ModelError, ModelSpec, build, parse_spec, resolve
from gradmux.lambda_worker.objects import MissingObject, ObjectStore, StoreError
from gradmux.lambda_worker.order import BatchOrder
from gradmux.lambda_worker.step import Stepper

__all__ = ["Sandbox", "Stepping"]

CANCEL_CHECK_S = 2.0
"""Between two looks at a run's cancel marker."""
MODELS = 16
SNAPSHOTS = 8
SNAPSHOT_BYTES = 256 * 2**20
STEPPING_BYTES = 512 * 2**20
"""Of models that are stepped here; there is always room for one."""
DATASETS = 4
ORDERS = 8


@dataclass(slots=True)
class Stepping:
    """A model that is stepped here."""

    model: Model
    stepper: Stepper
    at: str = ""
    """SHA-256 of the state that it is in; empty: of none that is known"""

    @classmethod
    def of(cls, spec: ModelSpec) -> Stepping:
        """Raises ModelError, RecipeError; the user's own exceptions pass through."""
        if spec.recipe is None:
            raise ModelError("the spec does not say how the model is stepped")
        model = build(spec)
        stepping = cls(model, Stepper(model, resolve(spec.recipe, "recipe")()))
        stepping.stepper.idle = frozenset(spec.idle)
        return stepping

    @property
    def size(self) -> int:
        """Bytes, about: parameters, a gradient and two moments."""
        return 4 * sum(parameter.nbytes for parameter in self.model.parameters)


class Sandbox:
    """Models, snapshots and data sets of one bucket."""

    def __init__(self, objects: ObjectStore, disk: DiskCache) -> None:
        self.objects = objects
        self._disk = disk
        self._models: MemoryCache[Model] = MemoryCache(MODELS)
        self._stepping: MemoryCache[Stepping] = MemoryCache(MODELS, STEPPING_BYTES)
        self._looked: dict[str, float] = {}
        """key -> when it was looked for last; the newest alone"""
        self._snapshots: MemoryCache[Tensor] = MemoryCache(SNAPSHOTS, SNAPSHOT_BYTES)
        self._datasets: MemoryCache[Dataset] = MemoryCache(DATASETS)
        self._orders: MemoryCache[BatchOrder] = MemoryCache(ORDERS)
        self._marker: str | None = None
        self._marker_read_at = 0.0
        self._cancelled_epoch = -1

    def cancelled_epoch(self, key: str) -> int:
        """The newest epoch that the marker under `key` cancels, -1 without one; read at most every CANCEL_CHECK_S.

        A look at every invocation would cost each of them a request, and the client stops sending by itself.
        """
        now = time.time()  # goes on while AWS freezes the sandbox, as the monotonic clock need not
        if key != self._marker or not 0 <= now - self._marker_read_at < CANCEL_CHECK_S:
            self._marker, self._marker_read_at = key, now
            self._cancelled_epoch = self._read_marker(key)
        return self._cancelled_epoch

    def _read_marker(self, key: str) -> int:
        try:
            return cancelled_epoch(self.objects.get(key))
        except (MissingObject, StoreError):  # no marker; or none can be read, and then computing is the lesser evil
            return -1

    def model(self, key: str) -> Model:
        """The model of a spec. The factory's exceptions pass through."""
        return self._models.get(key, lambda: (build(parse_spec(self.read(key))), 0))

    def stepping(self, key: str) -> Stepping:
        """The model of a spec, with what steps it, in the state that it was left in."""

        def make() -> tuple[Stepping, int]:
            made = Stepping.of(parse_spec(self.read(key)))
            return made, made.size

        return self._stepping.get(key, make)

    def has_appeared(self, key: str, *, now: bool = False) -> bool:
        """Is there an object under this key? Looked for every CANCEL_CHECK_S at most: no, until then."""
        at = time.time()
        if not now and 0 <= at - self._looked.setdefault(key, at) < CANCEL_CHECK_S:
            return False
        self._looked = {key: at}
        try:
            self.objects.get(key)
        except (MissingObject, StoreError):
            return False
        return True

    def order(self, order: Order, data: str) -> BatchOrder:
        """The batches of a model on the data set of a manifest; it keeps what it has shuffled."""

        def made() -> tuple[BatchOrder, int]:
            sampling = self.dataset(data).sampling
            return BatchOrder(order.rows, order.batch_size, order.seed, shuffle=order.shuffle, sampling=sampling), 0

        return self._orders.get((order, data), made)

    def snapshot(self, weights: Weights, model: Model) -> Tensor:
        """The flat vector that the weights refer to, in the model's dtype."""
        dtype = str(model.dtype).removeprefix("torch.")
        inline = weights.raw("weights")
        if inline is not None:
            return flat.from_bytes(inline, dtype)
        key = weights.key or ""

        def read() -> tuple[Tensor, int]:
            raw = self.read(key)
            return flat.from_bytes(raw, dtype), len(raw)

        return self._snapshots.get((key, dtype), read)

    def dataset(self, key: str) -> Dataset:
        """The data set of a manifest."""
        return self._datasets.get(key, lambda: (Dataset(parse_manifest(self.read(key)), self.objects, self._disk), 0))

    def read(self, key: str) -> bytes:
        """An object whose key names its content. Raises DigestError when it holds other content."""
        return checked(key, self.objects.get(key))
