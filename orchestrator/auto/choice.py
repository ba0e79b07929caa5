"""What bounds the choice of a scheme, and a choice with its reason.

Knows no delays. Read next: `decide.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gradmux.orchestrator.closing import TIMEOUT_S, Closing
from gradmux.orchestrator.prices import PRICES, Prices
from gradmux.orchestrator.schemes.pipeline import INFO as PIPELINE
from gradmux.orchestrator.schemes.uncoded import INFO as UNCODED
from gradmux.orchestrator.schemes.worth import HOUR_USD

AUTO = "auto"
"""the scheme's name in a job file, and the key of `Header.extra` under which a choice is recorded"""


@dataclass(frozen=True, slots=True)
class AutoJob:
    """What bounds the choice."""

    models: int
    """M"""
    steps: int
    """per model, over the whole run"""
    workers: int
    """n of uncoded, and the most that a scheme may use for one job"""
    concurrency: int
    """C"""
    closing: Closing = field(default_factory=Closing)
    """by rule earliest"""
    max_load: float | None = None
    seed: int = 0
    hour_usd: float = HOUR_USD
    """V, dollars that an hour of waiting is worth"""
    prices: Prices = PRICES
    memory_mb: int = 2048
    parameters: int = 0
    """p of a model, on average: what travels"""
    attempts: int = 3
    """tries per worker and round"""
    timeout_s: float = TIMEOUT_S
    """seconds that a function may run"""
    passes: int | None = None
    """P, into how many passes every batch is cut; None: not known"""

    @property
    def abreast(self) -> bool:
        """Can several models be in flight at once, each on all n workers?"""
        return self.models > 1 and self.concurrency >= 2 * self.workers


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheme and why it was chosen."""

    scheme: str
    params: Mapping[str, int | float | str]
    workers: int
    """n"""
    reason: str
    predicted_s: float | None = None
    """per gradient, by the evaluator over the measured delays"""
    uncoded_s: float | None = None
    """the same for uncoded on all n workers"""
    predicted_usd: float | None = None
    """its bill"""
    uncoded_usd: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """For the record."""
        return {**asdict(self), "params": dict(self.params)}

    def describe(self) -> str:
        """One line for people."""
        params = "".join(f" {key}={value}" for key, value in self.params.items())
        told = f"{self.scheme}{params} on {self.workers} workers: {self.reason}"
        if self.predicted_s is None or self.uncoded_s is None:
            return told
        money, plainly = (f", ${usd:.6f}" if usd is not None else "" for usd in (self.predicted_usd, self.uncoded_usd))
        predicted = f"{self.predicted_s:.3f} s{money} a gradient predicted"
        return f"{told} ({predicted}, uncoded {self.uncoded_s:.3f} s{plainly})"

    @property
    def key(self) -> tuple[str, int, tuple[tuple[str, Any], ...]]:
        """Equal for the same scheme with the same parameters."""
        return self.scheme, self.workers, tuple(sorted(self.params.items()))


def plain(workers: int, reason: str = "") -> Choice:
    """Uncoded on so many workers, one round after the other."""
    return Choice(UNCODED.name, {}, workers, reason)


def side_by_side(workers: int, reason: str = "") -> Choice:
    """The same for each model by itself: uncoded, but no model waits for another's stragglers."""
    return Choice(PIPELINE.name, {"per_job": workers, "stragglers": 0}, workers, reason)
