"""The cases that lie beside the project: models and losses that once trained to other weights without a word."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from scripts.exactness.cases import BITS, IGNORED, IMAGES, NEXT, NUMBERS, TOKENS, X, Y, linear, sequence
from scripts.exactness.here import Case

FILE = Path(__file__).resolve().parents[3] / "shared" / "cases" / "exact_cases.py"


def shared_cases(file: Path = FILE) -> tuple[list[Case], list[tuple[str, str]]]:
    """The cases of that file, and why there are none."""
    if not file.exists():
        return [], [("shared cases", f"there is no {file.parent.name}/{file.name} beside the project")]
    return _cases(_loaded(file)), []


def _loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("exact_cases", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["exact_cases"] = module
    spec.loader.exec_module(module)
    return module


class Wrapped(nn.Module):
    """A layer whose output is something else than a tensor."""

    def __init__(self, make: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.make = nn.Linear(20, 5), make

    def forward(self, x: Tensor) -> Any:
        out = self.layer(x)
        return self.make(out, out.sum(1))


def _cases(found: ModuleType) -> list[Case]:
    rope = sequence(found.Rope, Transposed)
    plain, three = linear(20, 5), linear(20, 3)
    digits = np.random.default_rng(3).standard_normal((640, 64)).astype("f4")
    made = [
        ("complex buffer (RoPE)", rope, TOKENS, NEXT, "cross_entropy"),
        ("complex parameter", found.ComplexWeight, X, Y, "cross_entropy"),
        ("frozen BatchNorm", found.FrozenNorm, IMAGES, Y, "cross_entropy"),
        ("running input in buffers", found.RunningInput, X, Y, "cross_entropy"),
        ("InstanceNorm, running statistics", found.instance_norm, IMAGES, Y, "cross_entropy"),
        ("spectral norm", found.spectral, X, Y, "cross_entropy"),
        ("numpy in the factory", found.NumpyFeatures, X, Y, "cross_entropy"),
        ("numpy in the forward", found.NumpyLayerDrop, X, Y, "cross_entropy"),
        ("centred batch", found.BatchCentred, X, Y, "cross_entropy"),
        ("sparse embedding", found.sparse_embedding, TOKENS, Y, "cross_entropy"),
        ("frequency embedding", found.frequency_embedding, TOKENS, Y, "cross_entropy"),
        ("residual BatchNorm net", found.Mixed, digits, Y, "cross_entropy"),
        ("class weights", plain, X, Y, found.WEIGHTED),
        ("ignored tokens", sequence(partial(nn.Embedding, 50, 50), Transposed), TOKENS, IGNORED, found.IGNORING),
        ("MSELoss, several outputs", three, X, NUMBERS, found.MSE),
        ("BCEWithLogitsLoss, pos_weight", three, X, BITS, found.BCE),
        ("InfoNCE", linear(20, 8), X, Y, found.info_nce),
        ("loss with parameters", plain, X, Y, found.Centres()),
        ("namedtuple output", partial(Wrapped, found.Named), X, Y, logits_loss),
        ("dataclass output", partial(Wrapped, found.Record), X, Y, logits_loss),
        ("mapping output", partial(Wrapped, partial(_mapping, found)), X, Y, logits_loss),
        ("lru_cache", partial(_cached, found), X, Y, "cross_entropy"),
    ]
    return [Case(name, "shared", factory, x, y, loss) for name, factory, x, y, loss in made]


class Transposed(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        return scores.transpose(1, 2)


def _mapping(found: ModuleType, logits: Tensor, aux: Tensor) -> Any:
    return found.ModelOutput(logits=logits, aux=aux)


def _cached(found: ModuleType) -> nn.Module:
    return nn.Sequential(nn.Linear(20, found.width()), nn.ReLU(), nn.Linear(found.width(), 5))


def logits_loss(output: Any, target: Tensor) -> Tensor:
    return F.cross_entropy(output.logits, target, reduction="none") + 0.01 * output.aux.square()


__all__ = ["shared_cases"]
