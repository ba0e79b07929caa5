"""Synthetic delay profiles, all through `generate(kind, rounds, workers, seed, parameters)`.

Kinds: `shifted-exponential` (the model of the coding papers), `bursty` (a Gilbert-Elliott chain per worker),
`lambda-like` and the names of its presets. A kind from elsewhere joins by `register`, or by an entry point of the group
"gradmux.delays" that names a `DelayGenerator`. Knows no scheme. Read next: `lambda_like.py`, `statistics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from gradmux.orchestrator.delays import lambda_like
from gradmux.orchestrator.delays.lambda_like import LambdaLike
from gradmux.orchestrator.delays.presets import PRESETS
from gradmux.orchestrator.delays.profile import BoolArray, DelayProfile, delay_matrix
from gradmux.orchestrator.errors import ConfigError, raised_at


def _positive(label: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise ConfigError(f"{label} must be above 0, got {value:g}")


@dataclass(frozen=True, slots=True)
class ShiftedExponential:
    """Time `unit_s * (load + Exp(mean load / straggling))`: a constant per sample, and an exponential tail per sample.

    With load = c/n this is the model `c/n + Exp(rate n lambda / c)` of the coding papers. All of a
    delay is in proportion to the load, the tail too, and the profile says so (`scales`).
    """

    load: float | None = None
    """fraction of one batch per worker; None: 1 / workers"""
    straggling: float = 0.1
    """rate lambda of the tail: smaller is worse; 0.1 makes the mean tail ten times the constant part"""
    unit_s: float = 1.0
    """seconds that one whole batch takes one worker that does not straggle"""

    def __post_init__(self) -> None:
        if self.load is not None:
            _positive("load", self.load)
        _positive("straggling", self.straggling)
        _positive("unit_s", self.unit_s)


@dataclass(frozen=True, slots=True)
class Bursty:
    """Gilbert-Elliott: each worker is well or slow, and stays so for a geometric number of rounds.

    A delay is `base_s + Exp(jitter_s)`, and `Exp(slow_s)` more while the worker is slow. Rounds start in equilibrium.
    """

    base_s: float = 1.0
    """fastest possible answer"""
    jitter_s: float = 0.05
    """mean further time of every answer"""
    slow_share: float = 0.05
    """share of the time that a worker is slow"""
    burst_rounds: float = 3.0
    """mean length of a slow spell, rounds"""
    slow_s: float = 2.0
    """mean further time of an answer while slow"""

    def __post_init__(self) -> None:
        for label, value in (("base_s", self.base_s), ("jitter_s", self.jitter_s), ("slow_s", self.slow_s)):
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{label} must be >= 0 seconds, got {value:g}")
        if not 0.0 <= self.slow_share < 1.0:
            raise ConfigError(f"slow_share must lie in 0 .. 1 (1 excluded), got {self.slow_share:g}")
        shortest = max(1.0, self.slow_share / (1.0 - self.slow_share))
        if not shortest <= self.burst_rounds < math.inf:
            raise ConfigError(
                f"burst_rounds must be at least {shortest:g} with slow_share = {self.slow_share:g}, "
                f"got {self.burst_rounds:g}"
            )


Parameters = ShiftedExponential | Bursty | LambdaLike
ENTRY_POINTS = "gradmux.delays"


@dataclass(frozen=True, slots=True)
class DelayGenerator:
    """A kind of delays from elsewhere, as an entry point of "gradmux.delays" names it, whose name is the kind's."""

    sample: Callable[[Any, int, int, int], DelayProfile | npt.ArrayLike]
    """(parameters, rounds, workers, seed) -> a profile, or (rounds, workers) seconds; all of it follows from `seed`"""
    defaults: Any
    """its parameters: an instance of a dataclass of numbers, which raises ConfigError for what cannot be"""


PLUGINS: dict[str, DelayGenerator] = {}
"""Kinds that were registered, by name."""

GENERATORS: Mapping[str, Parameters] = MappingProxyType(
    {"shifted-exponential": ShiftedExponential(), "bursty": Bursty(), "lambda-like": PRESETS["persistent"], **PRESETS}
)
"""Every kind of ours, with its default parameters."""


def register(kind: str, generator: DelayGenerator) -> None:
    """Adds a kind; the same one twice is fine. Raises: ConfigError when the name is taken."""
    if kind in GENERATORS or PLUGINS.setdefault(kind, generator) is not generator:
        raise ConfigError(f"a delay generator called {kind!r} is there already: give yours another name")


def known(kind: str) -> bool:
    """Is there such a kind, among those that installed packages bring too? Raises: ConfigError for a broken one."""
    if kind in GENERATORS or kind in PLUGINS:
        return True
    for point in entry_points(group=ENTRY_POINTS, name=kind):
        _load(point)
    return kind in PLUGINS


def _load(point: EntryPoint) -> None:
    try:
        found = point.load()
    except Exception as error:  # it runs the package's code, which may raise anything
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise ConfigError(f"delay generator {point.name!r} cannot be loaded from {point.value}: {reason}") from error
    if not isinstance(found, DelayGenerator):
        raise ConfigError(
            f"delay generator {point.name!r}: {point.value} is a {type(found).__name__}, not a DelayGenerator"
        )
    register(point.name, found)


def kinds() -> list[str]:
    """Names of all kinds: ours, then those of installed packages."""
    return list(dict.fromkeys([*GENERATORS, *sorted({*PLUGINS, *entry_points(group=ENTRY_POINTS).names})]))


def generate(kind: str, rounds: int, workers: int, seed: int, parameters: Any = None) -> DelayProfile:
    """A profile of this kind, named after it; equal arguments give equal bits.

    `parameters` replaces the kind's own and must be of its class. Raises ConfigError.
    """
    default = _default(kind)
    chosen = default if parameters is None else parameters
    if type(chosen) is not type(default):
        raise ConfigError(f"{kind} takes {type(default).__name__} parameters, got {type(chosen).__name__}")
    if rounds < 1 or workers < 1:
        raise ConfigError(f"a delay profile needs at least one round and one worker, got {rounds} and {workers}")
    if seed < 0:
        raise ConfigError(f"seed must be >= 0, got {seed}")
    if kind in PLUGINS:
        return _from_plugin(kind, chosen, rounds, workers, seed)
    return replace(_sampler(chosen)(rounds, workers, seed), name=kind)


def _from_plugin(kind: str, parameters: Any, rounds: int, workers: int, seed: int) -> DelayProfile:
    """Checked: what it gives has the size that was asked for, and the same bits for the same seed."""
    made, again = (_sampled(kind, parameters, rounds, workers, seed) for _ in range(2))
    if made.delays_s.shape != (rounds, workers):
        raise ConfigError(f"delay generator {kind!r} gave {made.delays_s.shape} delays, not {(rounds, workers)}")
    if not made.same_as(again):
        raise ConfigError(f"delay generator {kind!r} gave other delays for the same seed: draw all of them from it")
    return replace(made, name=kind)


def _sampled(kind: str, parameters: Any, rounds: int, workers: int, seed: int) -> DelayProfile:
    try:
        made = PLUGINS[kind].sample(parameters, rounds, workers, seed)
    except ConfigError:
        raise
    except Exception as error:  # a generator from elsewhere may raise anything
        raise ConfigError(
            f"delay generator {kind!r} raised {type(error).__name__}: {error} ({raised_at(error)})"
        ) from error
    return made if isinstance(made, DelayProfile) else DelayProfile(delay_matrix(made))


def parameters_for(kind: str, overrides: Mapping[str, float]) -> Any:
    """The parameters of a kind, some replaced by name as a command line gives them. Raises ConfigError."""
    default = _default(kind)
    names = [field.name for field in fields(default)]
    for name in overrides:
        if name not in names:
            raise ConfigError(f"{kind} has no parameter {name!r}; it has {', '.join(names) or 'none'}")
    values = {name: getattr(default, name) for name in names} | dict(overrides)
    return type(default)(**values)


def _default(kind: str) -> Any:
    if not known(kind):
        raise ConfigError(f"no delay generator is called {kind!r}; there are {', '.join(kinds())}")
    return PLUGINS[kind].defaults if kind in PLUGINS else GENERATORS[kind]


def _sampler(parameters: Parameters) -> Callable[[int, int, int], DelayProfile]:
    match parameters:
        case ShiftedExponential():
            return lambda rounds, workers, seed: _shifted_exponential(parameters, rounds, workers, seed)
        case Bursty():
            return lambda rounds, workers, seed: _bursty(parameters, rounds, workers, seed)
        case LambdaLike():
            return lambda rounds, workers, seed: lambda_like.sample(parameters, rounds, workers, seed)


def _shifted_exponential(p: ShiftedExponential, rounds: int, workers: int, seed: int) -> DelayProfile:
    load = 1.0 / workers if p.load is None else p.load
    tail = np.random.default_rng(seed).exponential(load / p.straggling, size=(rounds, workers))
    return DelayProfile(p.unit_s * (load + tail), load=load, slope_s=p.unit_s, scales=True)


def _bursty(p: Bursty, rounds: int, workers: int, seed: int) -> DelayProfile:
    chain, times = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    delays_s = p.base_s + times.exponential(p.jitter_s, size=(rounds, workers))
    delays_s += _slow_spells(p, rounds, workers, chain) * times.exponential(p.slow_s, size=(rounds, workers))
    return DelayProfile(delays_s)


def _slow_spells(p: Bursty, rounds: int, workers: int, rng: np.random.Generator) -> BoolArray:
    """(rounds, workers), true while slow: a two-state Markov chain per worker, started in equilibrium."""
    leave = 1.0 / p.burst_rounds
    enter = leave * p.slow_share / (1.0 - p.slow_share)
    draws = rng.random((rounds, workers))
    slow = np.empty((rounds, workers), dtype=np.bool_)
    slow[0] = draws[0] < p.slow_share
    for row in range(1, rounds):
        slow[row] = draws[row] < np.where(slow[row - 1], 1.0 - leave, enter)
    return slow
