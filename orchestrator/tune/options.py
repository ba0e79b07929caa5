"""What the tuner may choose from and what it aims at.

Knows no delays. Read next: `tuner.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from gradmux.orchestrator.closing import TIMEOUT_S, Closing
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.evaluate.families import FAMILIES
from gradmux.orchestrator.policies import Limits, limits_of
from gradmux.orchestrator.prices import PRICES, Prices
from gradmux.orchestrator.schemes import pipeline_auto
from gradmux.orchestrator.schemes.registry import get
from gradmux.orchestrator.schemes.worth import HOUR_USD, Amount, value

FITTING = pipeline_auto.INFO.name
"""the scheme that fits itself to the delays: played by the loop, not evaluated"""
SCHEMES = (*FAMILIES, FITTING)
"""what is tried where nothing is named: exact schemes; others are played by the loop where they are named"""
Objective = Literal["time", "cost", "worth"]
"""V = inf, V = 0, and what lies between"""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Raises ConfigError for what cannot be."""

    jobs: int = 100
    """J, gradients that a candidate is judged by"""
    models: int = 4
    """M, models side by side: the delay T may be M - 1 at most"""
    concurrency: int | None = None
    """C, invocations in flight at any instant, at most; None: `policies.usual_concurrency`"""
    workers: tuple[int, ...] | None = None
    """n to try; None: a list up to the concurrency and the profile's workers"""
    slope_s: float | None = None
    """seconds per unit of load; None: the profile's own"""
    base_load: float | None = None
    """load that the delays stand for; None: the profile's own"""
    max_load: float | None = None
    """largest load as a multiple of 1/n; None: not bounded"""
    hour_usd: float = HOUR_USD
    """V, dollars that an hour of waiting is worth; 0: the cheapest, inf: the fastest"""
    schemes: tuple[str, ...] = SCHEMES
    """of the registry, with those from elsewhere; estimates are not chosen while there is an exact scheme"""
    closing: Closing = field(default_factory=Closing)
    """when rounds close, and what counts after that; what it says of late answers holds by rule earliest alone"""
    memory_mb: int = 2048
    prices: Prices = PRICES
    parameters: int = 0
    """p of a model: what its gradient, weights and state take on their way out of AWS; 0: not counted"""
    here_s: float | None = None
    """seconds that this machine alone takes for a whole batch, with all its cores; None: not measured"""
    resamples: int = 20
    """resampled profiles over which the best few are compared; 0: none, the best on the profile itself is taken"""
    seed: int = 0
    attempts: int = 3
    """tries per worker and round, calls that fail included"""
    timeout_s: float = TIMEOUT_S
    """seconds that a function may run: when a failed call is found for which the profile does not say it"""
    passes: int | None = None
    """P, into how many passes every batch is cut: no choice cuts it into more parts; None: not known"""

    @property
    def by_mu(self) -> bool:
        """Do rounds close by the papers' rule?"""
        return self.closing.wait == "mu"

    def limits(self, concurrency: int) -> Limits:
        """What bounds the loop and the evaluator: under the papers' rule a late answer never counts."""
        heeded = replace(self.closing, harvest_late=self.closing.harvest_late and not self.by_mu)
        return replace(limits_of(heeded, concurrency), attempts=self.attempts)

    @property
    def objective(self) -> Objective:
        """In one word."""
        return "cost" if self.hour_usd == 0 else "time" if math.isinf(self.hour_usd) else "worth"

    def value(self, usd: Amount, seconds: Amount) -> Amount:
        """E, which is to be least: dollars, or seconds with V = inf."""
        return value(usd, seconds, self.hour_usd)

    def __post_init__(self) -> None:
        if not self.hour_usd >= 0:
            raise ConfigError(f"hour_usd is {self.hour_usd:g}, but an hour of waiting is worth 0 dollars or more")
        if self.parameters < 0:
            raise ConfigError(f"parameters is {self.parameters}, but a model has 0 or more")
        for label, given in (("jobs", self.jobs), ("models", self.models), ("memory_mb", self.memory_mb)):
            if given < 1:
                raise ConfigError(f"{label} is {given}, but must be at least 1")
        if self.passes is not None and self.passes < 1:
            raise ConfigError(f"passes is {self.passes}, but a batch has at least 1 pass")
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigError(f"concurrency is {self.concurrency}, but at least 1 invocation must be allowed in flight")
        if self.max_load is not None and not self.max_load >= 1:
            raise ConfigError(
                f"max_load is {self.max_load:g}: nothing satisfies that, since each of n workers computes 1/n of a "
                "batch at least; use max_load >= 1"
            )
        if not self.schemes:
            raise ConfigError(f"no scheme cannot be tuned; without a choice: {', '.join(SCHEMES)}")
        for name in self.schemes:
            get(name)
