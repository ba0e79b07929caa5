"""Ends a run that has cost what it may cost. Knows no record and no fleet. Read next: `orchestrator/prices.py`."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from gradmux.orchestrator.errors import BudgetSpent
from gradmux.orchestrator.prices import Prices


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
    run: str = "RUN"

    def check(self, billed_s: float, invocations: int) -> None:
        """Raises BudgetSpent when so much more has used it up. What is in flight has no bill yet and comes on top."""
        seconds, calls = self.billed_s + billed_s, self.invocations + invocations
        usd = self.prices.compute_usd(seconds, self.memory_mb) + self.prices.requests_usd(calls)
        if usd >= self.max_usd:
            raise BudgetSpent(
                f"the run has cost ${usd:.6f} and may cost ${_in_full(self.max_usd)} (cluster.max_cost_usd): "
                f"`gradmux resume {self.run} --max-cost-usd USD` goes on with a larger budget"
            )


def _in_full(usd: float) -> str:
    """Without an exponent, as amounts are written."""
    return f"{Decimal(repr(float(usd))):f}".removesuffix(".0")
