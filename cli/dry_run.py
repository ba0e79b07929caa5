"""What `submit --dry-run` tells: what would run, and what it would cost.

Knows no backend. Read next: `orchestrator/estimate/job.py`.
"""

from __future__ import annotations

from typing import Any

from gradmux.cli.options import Settings
from gradmux.cli.output import facts, print_json, stdout
from gradmux.orchestrator.estimate.job import Estimate, plan_of
from gradmux.orchestrator.runs.prepare import Prepared


def tell_plan(settings: Settings, prepared: Prepared, estimate: Estimate | str) -> None:
    """A few facts, or one JSON document. `estimate`: or why there is none."""
    plan = plan_of(prepared)
    if settings.json:
        told, why = (None, estimate) if isinstance(estimate, str) else (estimate.to_dict(), "")
        print_json(plan | {"estimate": told, "no_estimate": why})
        return
    cost = [("cost", f"cannot be told: {estimate}")] if isinstance(estimate, str) else _cost(prepared, estimate)
    stdout().print(facts([*((key, _text(value)) for key, value in plan.items()), *cost]))


def _cost(prepared: Prepared, estimate: Estimate) -> list[tuple[str, str]]:
    bill = estimate.bill
    told = f"about ${_usd(bill.usd)}: {bill.invocations:,.0f} calls, {bill.gb_s:,.1f} GB-s"
    parts = f"compute ${_usd(bill.compute_usd)}, calls ${_usd(bill.requests_usd)}, S3 ${_usd(bill.s3_usd)}"
    parts += f", data out ${_usd(bill.out_usd)}"
    lines = [("cost", f"{told} ({parts})")]
    if estimate.lasts:
        lines.append(("time", f"about {_duration(estimate.calls.wall_s)}"))
    if estimate.exceeds_budget:
        assert estimate.max_cost_usd is not None
        share = estimate.max_cost_usd / bill.lambda_usd
        lines.append(
            (
                "BUDGET",
                f"more than max_cost_usd = {estimate.max_cost_usd:g}: the run would stop, resumably, after about "
                f"{share:.0%} of its gradients",
            )
        )
    return [*lines, ("rests on", estimate.assumes)]


def _usd(amount: float) -> str:
    """Cents and less, as far as they say something."""
    return f"{amount:.2f}" if amount >= 1 else f"{amount:.3g}" if amount >= 0.01 else f"{amount:.6f}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
