"""What parameters are evaluated against: the delays, the jobs, and when a round closes. The same for all of them.

Knows no scheme. Read next: `batch.py` (the parameters), `draws.py` (the delays by round).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from gradmux.orchestrator.delays.failures import Failures
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Earliest, Limits, WaitPolicy
from gradmux.orchestrator.schemes.scheme import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """Raises ConfigError for what the evaluator does not cover; `simulate.simulate` plays all of it."""

    delays_s: FloatArray
    """(rows, columns) seconds, inf where a call fails; round t uses row t mod rows"""
    jobs: int = 100
    """J"""
    models: int = 4
    """M, models side by side; matters to overlapping schemes alone"""
    wait: WaitPolicy = field(default_factory=Earliest)
    limits: Limits = field(default_factory=Limits)
    """`concurrency`, `in_flight_cap`, `harvest_late`, `backup`, `attempts` and `invoke_idle` are heeded"""
    load: LoadModel = field(default_factory=LoadModel)
    """`load.load` must be None: a fixed load is given by column, see `Batch.loads`"""
    failures: Failures = field(default_factory=Failures)
    """when calls that fail are found"""
    seed: int = 0

    def __post_init__(self) -> None:
        limits = self.limits
        if limits.deadline_s is not None or limits.approximate or limits.split:
            raise ConfigError("the evaluator knows no deadline_s, approximate or split: use simulate for these")
        if self.load.scales and np.isinf(self.delays_s).any():
            raise ConfigError(
                "calls that fail are not evaluated where delays grow in proportion to the load: use simulate"
            )
        assert self.load.load is None, "give fixed loads by column: Batch.loads"

    def factor(self, loads: FloatArray) -> FloatArray:
        """What a load multiplies every delay by; 1 where delays are not in proportion to it."""
        return loads / self.load.base_load if self.load.scales else np.ones_like(loads)

    def unscaled(self) -> Setting:
        """The same with delays that do not depend on the load."""
        return replace(self, load=replace(self.load, slope_s=0.0, scales=False))

    def shift_s(self, loads: FloatArray) -> FloatArray:
        """What a load adds to every delay, seconds; 0 where delays are in proportion to it."""
        if self.load.scales:
            return np.zeros_like(loads)
        shift: FloatArray = (loads - self.load.base_load) * self.load.slope_s
        return shift
