"""Ends a run that has cost what it may cost. Knows no record and no fleet. Read next: `orchestrator/prices.py`."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import BudgetSpent
from orchestrator.prices import Prices


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may cost, over all its lives."""

    max_usd: float
    memory_mb: int
    prices: Prices
    billed_s: float = 0.0
    """by the lives and segments before this one"""
    invocations: int = 0
    """of these"""

    def check(self, billed_s: float, invocations: int) -> None:
        """Raises BudgetSpent when so much more has used it up. What is in flight has no bill yet and comes on top."""
        seconds, calls = self.billed_s + billed_s, self.invocations + invocations
        usd = self.prices.compute_usd(seconds, self.memory_mb) + self.prices.requests_usd(calls)
        if usd >= self.max_usd:
            raise BudgetSpent(
                f"the run has cost ${usd:.6f} and may cost ${self.max_usd:g} (cluster.max_cost_usd): "
                "`gradmux resume --max-cost-usd USD` goes on with a larger budget"
            )
