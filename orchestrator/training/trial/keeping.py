"""What a pass leaves behind that the next one may feel: parameters, buffers, attributes, and what nothing here can see.

The same pass is played again under the same seed, with parameters and buffers as they were, at once and after a pass
over other rows. If it comes out otherwise, something remembers: an attribute (then the pass comes out as before once
that is as it was), or state and random numbers that no seed governs. A cache that grows is fine: what counts is what
comes out. Read next: `outcome.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from isal import isal_zlib
from torch import Tensor, nn

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.models import Model
from gradmux.orchestrator.training.trial.mixing import told
from gradmux.orchestrator.training.trial.playing import Played, RowsOf, apart, buffers_kept, play, same

AGAIN = 1e-6
"""relative: the same pass gives the same, but for sums that threads add in another order"""
LATER = (100, 10_000, 1_000_000)
"""a number that a forward changes is tried as it may be so many passes later"""
PLAIN = (bool, int, float, str, bytes, type(None))
OWN = ("_parameters", "_buffers", "_modules", "training")


@dataclass(frozen=True, slots=True)
class Kept:
    """What a pass leaves behind."""

    parameters: tuple[str, ...] = ()
    """changed by a forward"""
    buffers: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    """that were changed, and on which outputs depend"""
    unsteady: bool = False
    """the same pass comes out otherwise, and no attribute is why"""
    draws: tuple[str, ...] = ()
    """generators that passes draw from: torch, numpy, random"""


def find_kept(model: Model, rows: RowsOf, size: int) -> Kept:
    """What passes of `size` rows leave behind; buffers are as before, and parameters, unless it tells of some.

    The model's exceptions pass.
    """
    one, other = rows.blocks(2, size)
    fresh, before = _Attributes(model.module), _told_attributes(model.module)
    with buffers_kept(model.module):
        parameters, buffers, first = _changes(model, rows, one)
    if parameters:
        return Kept(parameters)
    again, elsewhere = _played(model, rows, one), _played(model, rows, other[1:] or other, seed=1)
    later = _played(model, rows, one)
    changed = [place for place, told in _told_attributes(model.module).items() if before.get(place) != told]
    steady = _agree(first, again) and _agree(first, later)
    depends: list[Place] = []
    if not steady or changed:
        depends = _depends(model, rows, (one, other), changed, fresh, first, steady)
    layers = dict(model.module.named_modules())
    return Kept(
        parameters=parameters,
        buffers=buffers,
        attributes=tuple(f"{key} of {told(name, type(layers[name]).__name__)}" for name, key in depends),
        unsteady=not steady and not depends,
        draws=tuple(sorted({*first.draws, *elsewhere.draws})),
    )


def _played(model: Model, rows: RowsOf, ids: list[int], seed: int = 0) -> Played:
    with buffers_kept(model.module):
        return play(model, rows.read(ids), seed)


def _changes(model: Model, rows: RowsOf, ids: list[int]) -> tuple[tuple[str, ...], tuple[str, ...], Played]:
    """Parameters and buffers, by name, that one pass changes."""
    parameters, buffers = told_parameters(model.module), _buffers(model.module)
    played = play(model, rows.read(ids))
    changed = [
        name for name, each in _buffers(model.module).items() if name not in buffers or not same(buffers[name], each)
    ]
    return changed_parameters(model.module, parameters), tuple(changed), played


def _buffers(module: nn.Module) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in module.named_buffers()}


# --- parameters ----------------------------------------------------------------------------------------------------


def told_parameters(module: nn.Module) -> dict[str, int]:
    """Of each parameter, by name, a number that differs when a bit of it does: its CRC-32."""
    return {name: isal_zlib.crc32(flat.to_view(each.reshape(-1))) for name, each in module.named_parameters()}


def changed_parameters(module: nn.Module, before: Mapping[str, int]) -> tuple[str, ...]:
    """The names of those that are not as they were `before`, which `told_parameters` has told."""
    return tuple(name for name, told in told_parameters(module).items() if before.get(name) != told)


def _agree(one: Played, other: Played) -> bool:
    sums = [torch.tensor([each.loss, each.count], dtype=torch.float64) for each in (one, other)]
    return (
        max(apart(one.outputs, other.outputs), apart(one.gradient, other.gradient), apart(sums[:1], sums[1:])) < AGAIN
    )


# --- attributes ----------------------------------------------------------------------------------------------------

Place = tuple[str, str]
"""(layer, attribute)"""


class _Attributes:
    """What the layers of a module hold besides parameters, buffers and layers, to be put back."""

    def __init__(self, module: nn.Module) -> None:
        self._held: list[tuple[nn.Module, str, Any]] = []
        for layer in module.modules():
            for key, value in _own_of(layer):
                with suppress(Exception):  # what cannot be copied is not put back
                    self._held.append((layer, key, copy.deepcopy(value)))

    def put_back(self) -> None:
        """All that could be copied is as it was."""
        for layer, key, value in self._held:
            vars(layer)[key] = copy.deepcopy(value)


def _told_attributes(module: nn.Module) -> dict[Place, object]:
    """Of every layer, all that is neither parameter, buffer nor layer: as something that can be compared."""
    layers = dict(module.named_modules())
    return {(name, key): _told(value) for name, layer in layers.items() for key, value in _own_of(layer)}


def _own_of(layer: nn.Module) -> Iterator[tuple[str, Any]]:
    for key, value in list(vars(layer).items()):
        if key not in OWN and "_hooks" not in key:
            yield key, value


def _told(value: Any, depth: int = 3) -> object:
    """A value as something that differs when the value does; of what is unknown only whose it is."""
    if isinstance(value, Tensor):
        return "tensor", value.dtype, tuple(value.shape), value.detach().reshape(-1).clone().numpy().tobytes()
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, PLAIN):
        return type(value), repr(value)
    if isinstance(value, np.random.Generator):
        return _told(value.bit_generator.state)
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if depth and isinstance(value, Mapping):
        return tuple((repr(key), _told(each, depth - 1)) for key, each in value.items())
    if depth and isinstance(value, list | tuple | set):
        return tuple(_told(each, depth - 1) for each in value)
    return type(value), id(value)


def _depends(
    model: Model,
    rows: RowsOf,
    blocks: tuple[list[int], list[int]],
    changed: list[Place],
    fresh: _Attributes,
    first: Played,
    steady: bool,
) -> list[Place]:
    """Those of the changed attributes on which what comes out depends."""
    one, other = blocks
    layers = dict(model.module.named_modules())
    numbers = [place for place in changed if _later(vars(layers[place[0]]).get(place[1]))]
    found = [(name, key) for name, key in numbers if not _indifferent(model, rows, one, layers[name], key)]
    if found:
        return found
    fresh.put_back()
    as_first = _played(model, rows, one)
    fresh.put_back()
    _played(model, rows, other)
    after_other = _played(model, rows, one)
    if not _agree(first, as_first):
        return []  # nor is it an attribute that makes passes differ
    return changed if not steady or not _agree(first, after_other) else []


def _indifferent(model: Model, rows: RowsOf, ids: list[int], layer: nn.Module, key: str) -> bool:
    """Does a pass come out the same whatever number this attribute holds? Tried with what it may hold later."""
    value = vars(layer)[key]
    try:
        now = _with(model, rows, ids, layer, key, value)
        return all(_agree(now, _with(model, rows, ids, layer, key, other)) for other in _later(value))
    except Exception:  # what it may hold later is nothing that this forward takes
        return False


def _later(value: Any) -> list[Any]:
    """What a number that is changed may be later; none for what is no number."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + type(value)(passes) for passes in LATER]
    if isinstance(value, Tensor) and value.numel() == 1 and not value.requires_grad and value.dtype is not torch.bool:
        return [value.detach() + passes for passes in LATER]
    return []


def _with(model: Model, rows: RowsOf, ids: list[int], layer: nn.Module, key: str, value: Any) -> Played:
    before = vars(layer).get(key)
    vars(layer)[key] = value
    try:
        return _played(model, rows, ids)
    finally:
        vars(layer)[key] = before
