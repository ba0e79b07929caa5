"""What waiting is worth and what calls cost: the one objective by which everything is chosen, E = bill + V * time.

V is what an hour of waiting is worth to the user, in US dollars: with V = 0 the bill alone counts, with V = inf time
alone. Pure arithmetic; what calls cost comes from `orchestrator/prices.py`. Read next: `sizing.py`, which sizes jobs by
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.errors import ConfigError

HOUR_USD = 10.0
"""V where nothing is said"""
HOUR_S = 3600.0
Amount = TypeVar("Amount", float, NDArray[np.float64])


def value(usd: Amount, seconds: Amount, hour_usd: float) -> Amount:
    """E in dollars; with V = inf the seconds themselves. A run that stops takes inf of both."""
    if math.isinf(hour_usd):
        return seconds
    return usd + seconds * (hour_usd / HOUR_S) if hour_usd else usd


def waiting_usd(hour_usd: float | None, objective: str | None = None) -> float:
    """V: as given, or by an objective, where `time` is inf and `cost` is 0. Raises: ConfigError when both are given."""
    if objective is None:
        return HOUR_USD if hour_usd is None else hour_usd
    if hour_usd is not None:
        raise ConfigError(f"--objective {objective} says what an hour is worth: leave out --hour-usd")
    return math.inf if objective == "time" else 0.0


@dataclass(frozen=True, slots=True)
class Worth:
    """By what a scheme chooses that sizes its jobs itself."""

    hour_usd: float = HOUR_USD
    """V; inf: only time counts"""
    held_usd: float = 2 * 0.0000166667
    """of one invocation for one second: 2 GB on x86"""
    call_usd: float = 0.2e-6
    """of one invocation besides, when it computes a part of a gradient: the request, S3, and what leaves AWS"""
    state_usd: float = 0.2e-6
    """the same when it makes several steps, so that weights and the optimizer's state travel"""

    def value(self, usd: Amount, seconds: Amount) -> Amount:
        """E of so much money and time."""
        return value(usd, seconds, self.hour_usd)

    def told(self, amount: float) -> str:
        """An E for people."""
        return f"{amount:.3f} s" if math.isinf(self.hour_usd) else f"${amount:.6f}"

    def to_dict(self) -> dict[str, float | str]:
        """For JSON, which has no infinity."""
        return {**asdict(self), "hour_usd": "inf" if math.isinf(self.hour_usd) else self.hour_usd}

    @classmethod
    def of(cls, fields: Mapping[str, float | str]) -> Self:
        """Out of JSON. Raises: TypeError, ValueError."""
        return cls(**{name: float(amount) for name, amount in fields.items()})


WORTH = Worth()
"""where nothing is said"""
