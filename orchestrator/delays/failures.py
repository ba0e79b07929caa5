"""When a call that fails is found to have failed: the one rule for a delay that is missing.

A delay of inf is a call without an answer. It is found after the time that the profile states for it, or when the
function's time is over; it is then invoked again, with the delay of another column, as often as attempts are allowed.
The loop, the evaluator, the tuner, the estimate and the emulator all keep to this. Read next: `profile.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gradmux.orchestrator.closing import TIMEOUT_S
from gradmux.orchestrator.delays.dealing import dealt
from gradmux.orchestrator.errors import ConfigError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Failures:
    """When failed calls are found. Raises: ConfigError for what is no duration."""

    timeout_s: float = TIMEOUT_S
    """seconds that a function may run"""
    found_s: FloatArray | None = None
    """(rounds, columns) seconds from invocation until the failure is known; inf: not stated; None: nowhere stated.
    What stands beside an answer means nothing"""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise ConfigError(f"timeout_s must be a number of seconds above 0, got {self.timeout_s:g}")
        if self.found_s is not None and not (self.found_s >= 0).all():
            raise ConfigError("found_s, when failed calls are found, must be seconds >= 0; inf: not known")

    def instants(self, delays_s: FloatArray) -> FloatArray:
        """(rounds, columns) seconds until each failed call of these delays is found; 0 beside an answer.

        Raises: ConfigError when `found_s` is of other calls.
        """
        if self.found_s is not None and self.found_s.shape != delays_s.shape:
            raise ConfigError(f"found_s has shape {self.found_s.shape}, but the delays have {delays_s.shape}")
        stated_s = self.timeout_s if self.found_s is None else np.minimum(self.found_s, self.timeout_s)
        return np.where(np.isinf(delays_s), stated_s, 0.0)

    def taken(self, rows: IntArray) -> Failures:
        """Of these rounds, in this order."""
        return self if self.found_s is None else replace(self, found_s=self.found_s[rows])

    def tiled(self, folds: int) -> Failures:
        """Of the columns again and again, so often."""
        return self if self.found_s is None else replace(self, found_s=np.tile(self.found_s, (1, folds)))

    def scaled(self, scale: float) -> Failures:
        """In a life that is so much slower."""
        found_s = None if self.found_s is None else self.found_s * scale
        return Failures(self.timeout_s * scale, found_s)

    def dealt(self, rounds: int, seed: int) -> Failures:
        """Of delays that were dealt so."""
        return self if self.found_s is None else replace(self, found_s=dealt(self.found_s, rounds, seed))
