"""Which arrays or columns of a file become which inputs and targets: what a job declares, or what their names say.

    inputs = "x"                             that array                             forward(x)
    inputs = ["age", "fare"]                 columns side by side in one array      forward(x)
    inputs = { ids = "tokens", mask = "m" }  several, by name                       forward(ids=..., mask=...)
    inputs = { "0" = "left", "1" = "right" } several, by position                   forward(left, right)

Targets alike. Without a declaration: the target is y, label or target; the input x, or x.NAME; of a table without an x,
all other columns side by side. Knows no files. Read `reading.py` next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from gradmux.lambda_worker.structure import INPUT, SAMPLING, TARGET, WEIGHT, role_of
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.dataset import Array, Arrays

TARGET_NAMES = ("y", "label", "target")
EXACT_IN_FLOAT32 = 2**24

Names: TypeAlias = "str | Sequence[str]"
Chosen: TypeAlias = "Names | Mapping[str, Names]"


@dataclass(frozen=True, slots=True)
class Pad:
    """How lists of different lengths become rows of one length: what is missing at the end is filled."""

    length: int
    """of every row; a longer list is refused"""
    value: float = 0
    mask: str | None = None
    """an input of this name says which values are real"""


@dataclass(frozen=True, slots=True)
class Declared:
    """What a job says of its data."""

    inputs: Chosen | None = None
    targets: Chosen | None = None
    weights: str | None = None
    """the column or array of the rows' weights"""
    sampling: str | None = None
    """that of the numbers in proportion to which rows are drawn"""
    types: Mapping[str, str] = field(default_factory=dict)
    """of the columns of a CSV file"""
    pad: Mapping[str, Pad] = field(default_factory=dict)
    """column of lists -> how it is padded"""


NOTHING = Declared()


@dataclass(frozen=True, slots=True)
class Taken:
    """What becomes of the arrays of a file."""

    columns: Mapping[str, Names]
    """name in the data set -> name in the file, or several, side by side"""
    masks: Mapping[str, str] = field(default_factory=dict)
    """name in the data set -> under which a reader gives the mask of a padded column"""
    left: tuple[str, ...] = ()
    """not taken"""

    @property
    def names(self) -> list[str]:
        """All that are read, each once."""
        return list(dict.fromkeys(name for names in self.columns.values() for name in _listed(names)))

    def assemble(self, found: Arrays, where: str) -> Arrays:
        """Rows of the data set out of rows of the file. Raises: ConfigError."""
        masks = {name: found[mask] for name, mask in self.masks.items()}
        return {**{name: _assembled(found, names, where) for name, names in self.columns.items()}, **masks}

    def told(self) -> str:
        """In one line."""
        parts = []
        for name, names in self.columns.items():
            if names != name:
                parts.append(f"{name} from {_short(_listed(names))}")
        left = f"left out: {_short(self.left)}" if self.left else ""
        return "; ".join(filter(None, (", ".join(parts), left)))


def take(names: Sequence[str], index: Sequence[str], declared: Declared, where: str, *, table: bool) -> Taken:
    """What becomes of arrays or columns with these names; those in `index` number the rows and are no data.

    Raises: ConfigError that names what is missing or cannot be decided.
    """
    targets = _declared(declared.targets, TARGET)
    if targets is None:
        targets = _targets(names, where, needed=declared.inputs is None, table=table)
    weights: dict[str, Names] = {} if declared.weights is None else {WEIGHT: declared.weights}
    if declared.sampling is not None:
        weights[SAMPLING] = declared.sampling
    inputs = _declared(declared.inputs, INPUT)
    if inputs is None:
        used = {name for each in (*targets.values(), *weights.values()) for name in _listed(each)}
        free = [name for name in names if name not in used and name not in index]
        inputs = _inputs(free, names, where, table=table)
    columns = {**inputs, **targets, **weights}
    used = {name for each in columns.values() for name in _listed(each)}
    if missing := [name for name in used if name not in names]:
        raise ConfigError(f"data {where}: has no {', '.join(sorted(missing))}; it has {_short(names)}")
    masks = _masks(declared, inputs, used, where)
    left = [f"{name} (the index)" if name in index else name for name in names if name not in used]
    return Taken(columns, masks, tuple(left))


def _declared(chosen: Chosen | None, role: str) -> dict[str, Names] | None:
    if chosen is None:
        return None
    if isinstance(chosen, Mapping):
        return {f"{role}.{label}": names for label, names in chosen.items()}
    return {role: chosen}


def _masks(declared: Declared, inputs: Mapping[str, Names], used: Set[str], where: str) -> dict[str, str]:
    """The inputs that say which values of padded columns are real."""
    masks = {f"{INPUT}.{pad.mask}": mask_name(name) for name, pad in declared.pad.items() if pad.mask is not None}
    if masks and INPUT in inputs:
        name = next(iter(declared.pad))
        raise ConfigError(
            f"data {where}: a mask is an input of its own: give data.inputs by name, such as {{ {name} = {name!r} }}"
        )
    if unknown := [name for name in declared.pad if name not in used]:
        raise ConfigError(f"data {where}: data.pad names {unknown[0]}, which is no input or target")
    return masks


def mask_name(column: str) -> str:
    """Under which a reader gives the mask of a padded column."""
    return f"{column}.mask"


def _targets(names: Sequence[str], where: str, *, needed: bool, table: bool) -> dict[str, Names]:
    """Those that are called so."""
    structured = [name for name in names if role_of(name) == TARGET and name != TARGET]
    if structured and TARGET not in names:
        return {name: name for name in structured}
    found = [name for name in names if name in TARGET_NAMES]
    if len(found) == 1:
        return {TARGET: found[0]}
    if TARGET in found and not table:
        return {TARGET: TARGET}
    if not found and not needed:
        return {}
    kind = "columns" if table else "arrays"
    raise ConfigError(
        f"data {where}: expected {kind} of inputs and one of {', '.join(TARGET_NAMES)}; it has "
        f"{_short(names) or 'none'}: say which with data.inputs and data.targets"
    )


def _inputs(free: Sequence[str], names: Sequence[str], where: str, *, table: bool) -> dict[str, Names]:
    if INPUT in free:
        return {INPUT: INPUT}
    structured = [name for name in free if role_of(name) == INPUT]
    if structured:
        return {name: name for name in structured}
    if table and free:
        return {INPUT: tuple(free)}
    raise ConfigError(
        f"data {where}: expected an array x of inputs beside the targets; it has {_short(names) or 'none'}: say which "
        "are inputs with data.inputs"
    )


def _assembled(found: Arrays, names: Names, where: str) -> Array:
    if isinstance(names, str):
        return found[names]
    parts = [found[name] for name in names]
    for name, part in zip(names, parts, strict=True):
        if part.ndim > 2:
            raise ConfigError(
                f"data {where}: {name} has {part.ndim - 1} dimensions a row: it cannot stand beside others"
            )
    kinds = {part.dtype.kind for part in parts}
    if "f" in kinds and kinds - {"f"}:
        _require_exact(dict(zip(names, parts, strict=True)), where)
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _require_exact(parts: Arrays, where: str) -> None:
    """Whole numbers beside floats become floats: only where that changes none of them."""
    for name, part in parts.items():
        if part.dtype.kind in "iu" and part.size and np.abs(part.astype(np.float64)).max() > EXACT_IN_FLOAT32:
            raise ConfigError(
                f"data {where}: {name} holds whole numbers beyond 2^24, which floats beside it would round: leave it "
                "out with data.inputs (a number for each row is no feature), or scale it"
            )


def _listed(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _short(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"
