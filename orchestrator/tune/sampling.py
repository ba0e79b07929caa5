"""Parameter sets of a scheme that the tuner knows nothing about: its own grid, or one from what its parameters take.

Without a grid (`SchemeInfo.grid`), whole numbers go from 0 to n in steps that grow, choices are all taken, and other
numbers and texts stay at their defaults. What the scheme refuses to be built from is no candidate.
Read next: `playing.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.registry import build_scheme, get, parse_params
from gradmux.orchestrator.schemes.scheme import Context, Parameter, SchemeInfo
from gradmux.orchestrator.tune.options import TuneOptions

MOST_BUILT = 600
"""combinations that a scheme is built from to see which fit, for one n"""
Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One parameter set on n workers."""

    scheme: str
    params: Mapping[str, Any]
    workers: int


def sampled(scheme: str, workers: Sequence[int], options: TuneOptions) -> list[Candidate]:
    """All that fits these numbers of workers and M models. Raises: ConfigError when nothing does; SchemeFault."""
    info, refused, found = get(scheme), "", []
    for n in workers:
        for params in grid(info, n, options.models):
            try:
                complete = parse_params(info, params)
                built = build_scheme(scheme, complete, Context(n, options.jobs, options.models, options.seed))
            except ConfigError as error:
                refused = refused or str(error)
                continue
            if built.overlapping or built.delay < options.models:
                found.append(Candidate(scheme, complete, n))
    if not found:
        raise ConfigError(f"{scheme} has no parameters to try with {options.models} models: {refused or 'none fits'}")
    return found


def grid(info: SchemeInfo, workers: int, models: int) -> list[dict[str, Any]]:
    """The scheme's own parameter sets, or combinations of what each parameter takes."""
    if info.grid is not None:
        return [dict(params) for params in info.grid(workers, models)]
    free = [parameter for parameter in info.parameters if _values(parameter, workers)]
    axes = [_values(parameter, workers) for parameter in free]
    return [dict(zip((each.name for each in free), values, strict=True)) for values in combinations(axes, MOST_BUILT)]


def combinations(axes: Sequence[Sequence[Any]], most: int) -> list[tuple[Any, ...]]:
    """Their product, with the longest axes thinned until it has so many at most."""
    kept = [list(axis) for axis in axes]
    while _product(kept) > most:
        longest = max(kept, key=len)
        kept[kept.index(longest)] = list(thinned(longest, len(longest) - 1))
    return list(itertools.product(*kept))


def _product(axes: Sequence[Sequence[Any]]) -> int:
    size = 1
    for axis in axes:
        size *= len(axis)
    return size


def _values(parameter: Parameter, workers: int) -> list[Any]:
    """What is tried of one parameter; empty: it stays at its default."""
    if parameter.choices:
        return list(parameter.choices)
    if parameter.kind is int and parameter.default is None:
        return [0, *grown(workers)]
    if parameter.kind is int:
        return sorted({int(parameter.default or 0), *(n for n in grown(workers) if n <= FEW)})
    return []


FEW = 4
"""whole numbers that have a default are tried up to this"""


def grown(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 9, ... up to `most`, and that itself."""
    found, value = [], 1
    while value < most:
        found.append(value)
        value += max(1, value // 2)
    return [*found, most]


def thinned(every: Sequence[Thing], most: int) -> Sequence[Thing]:
    """At most so many, evenly spread, with the first and the last."""
    if len(every) <= most:
        return every
    if most == 1:
        return every[:1]
    return [every[round(place * (len(every) - 1) / (most - 1))] for place in range(most)]
