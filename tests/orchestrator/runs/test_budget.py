"""A budget ends a run at its price, and not before."""

import pytest

from gradmux.orchestrator.errors import BudgetSpent
from gradmux.orchestrator.prices import Prices
from gradmux.orchestrator.runs.budget import Budget

PRICES = Prices(gb_s=0.01, million_requests=1000.0)


def test_the_run_ends_when_seconds_and_calls_of_all_lives_cost_the_budget() -> None:
    budget = Budget(max_usd=1.0, memory_mb=2048, prices=PRICES, billed_s=20.0, invocations=100)
    budget.check(billed_s=24.0, invocations=10)  # 44 s * 2 GB * 0.01 + 110 * 0.001 = 0.99
    with pytest.raises(BudgetSpent, match=r"cost \$1\.000000 and may cost \$1 ") as stopped:
        budget.check(billed_s=24.0, invocations=20)
    assert stopped.value.exit_code == 5
    with pytest.raises(BudgetSpent, match=r"may cost \$0\.000001 .*`gradmux resume small-1 --max-cost-usd USD`"):
        Budget(1e-6, 2048, PRICES, run="small-1").check(1.0, 1)
    assert "gradmux resume RUN --max-cost-usd" in str(stopped.value)
