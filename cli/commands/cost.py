"""`gradmux cost`: what a run has cost until now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import facts, print_json, stdout, table

if TYPE_CHECKING:
    from gradmux.orchestrator.prices import Prices
    from gradmux.orchestrator.runs.cost import Bill, RunCost

COLUMNS = ("invocations", "billed", "late", "failed", "USD")


@command("cost", example="gradmux cost digits-1 --rounds")
@click.argument("run")
@click.option("--rounds", is_flag=True, help="Show every round, not only the lives of the run.")
@pass_settings
def cost_command(settings: Settings, run: str, rounds: bool) -> None:
    """Tell what RUN has cost at AWS's list prices, late, redundant and failed calls included.

    A run on the emulator costs nothing; told is what it would have cost. Your own prices go into `prices.toml` in the
    home folder.
    """
    from gradmux.orchestrator.record import read_record
    from gradmux.orchestrator.runs.cost import cost_of
    from gradmux.orchestrator.runs.keep import read_job
    from gradmux.orchestrator.runs.paths import find_run
    from gradmux.orchestrator.runs.tariff import tariff_of

    paths = find_run(settings.home, run)
    job = read_job(paths)
    tariff = tariff_of(paths, job.cluster)
    prices = tariff.prices
    cost = cost_of(read_record(paths.record) if paths.record.exists() else (), tariff.memory_mb)
    if settings.json:
        print_json({"run": paths.run, "scheme": job.scheme.name, **cost.to_dict(prices)})
        return
    _tell(paths.run, job.scheme.name, cost, prices, rounds, job.cluster.timeout_s)


def _tell(run: str, scheme: str, cost: RunCost, prices: Prices, rounds: bool, timeout_s: float) -> None:
    console, total = stdout(), cost.total
    out = total.invocations - total.returned
    console.print(
        facts(
            [
                ("run", f"{run} ({scheme}), {cost.memory_mb} MB a worker"),
                ("total", f"${total.usd(prices, cost.memory_mb):.6f} for {total.billed_s + total.beside_s:.1f} s"),
                (
                    "beside",
                    f"{total.beside} of the calls, {total.beside_s:.1f} s, started workers and summed gradients",
                ),
                ("not back", f"{out} invocations, which are not in the bill: at most {out * timeout_s:.1f} s more"),
                (
                    "prices",
                    f"{prices.date}: ${prices.gb_s:.10f} per GB-s, ${prices.million_requests} per million calls",
                ),
            ]
        )
    )
    lives = [(f"life {number}", *_row(bill, cost, prices)) for number, bill in enumerate(cost.lives, start=1)]
    console.print(table(("", *COLUMNS), lives, right=COLUMNS))
    shares = [(name, f"{s:.1f} s", f"{prices.compute_usd(s, cost.memory_mb):.6f}") for name, s in cost.models.items()]
    console.print(table(("model", "billed", "USD"), shares, right=("billed", "USD")))
    if rounds:
        rows = [(str(index), *_row(bill, cost, prices)) for (_, index), bill in cost.rounds.items()]
        console.print(table(("round", *COLUMNS), rows, right=("round", *COLUMNS)))


def _row(bill: Bill, cost: RunCost, prices: Prices) -> tuple[str, ...]:
    seconds = (f"{value:.1f} s" for value in (bill.billed_s, bill.late_s, bill.failed_s))
    return str(bill.invocations), *seconds, f"{bill.usd(prices, cost.memory_mb):.6f}"
