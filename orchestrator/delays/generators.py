"""Synthetic delay profiles, all through `generate(kind, rounds, workers, seed, parameters)`.

Kinds: `shifted-exponential` (the model of the coding papers), `bursty` (a Gilbert-Elliott chain per worker),
`lambda-like` and the names of its presets. Knows no scheme. Read next: `lambda_like.py`, `statistics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

import numpy as np

from gradmux.orchestrator.delays import lambda_like
from gradmux.orchestrator.delays.lambda_like import LambdaLike
from gradmux.orchestrator.delays.presets import PRESETS
from gradmux.orchestrator.delays.profile import BoolArray, DelayProfile
from gradmux.orchestrator.errors import ConfigError


def _positive(label: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise ConfigError(f"{label} must be above 0, got {value:g}")


@dataclass(frozen=True, slots=True)
class ShiftedExponential:
    """Time `unit_s * (load + Exp(mean load / straggling))`: a constant per sample, and an exponential tail per sample.

    With load = c/n this is the model `c/n + Exp(rate n lambda / c)` of the coding papers. The tail grows with the load,
    so a profile holds for its own load only; the additive slope that it carries is the constant part.
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

GENERATORS: Mapping[str, Parameters] = MappingProxyType(
    {"shifted-exponential": ShiftedExponential(), "bursty": Bursty(), "lambda-like": PRESETS["persistent"], **PRESETS}
)
"""Every kind that `generate` knows, with its default parameters."""


def generate(kind: str, rounds: int, workers: int, seed: int, parameters: Parameters | None = None) -> DelayProfile:
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
    return replace(_sampler(chosen)(rounds, workers, seed), name=kind)


def parameters_for(kind: str, overrides: Mapping[str, float]) -> Parameters:
    """The parameters of a kind, some replaced by name as a command line gives them. Raises ConfigError."""
    default = _default(kind)
    known = [field.name for field in fields(default)]
    for name in overrides:
        if name not in known:
            raise ConfigError(f"{kind} has no parameter {name!r}; it has {', '.join(known)}")
    values = {name: getattr(default, name) for name in known} | dict(overrides)
    return type(default)(**values)


def _default(kind: str) -> Parameters:
    if kind not in GENERATORS:
        raise ConfigError(f"no delay generator is called {kind!r}; there are {', '.join(GENERATORS)}")
    return GENERATORS[kind]


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
    return DelayProfile(p.unit_s * (load + tail), load=load, slope_s=p.unit_s)


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
