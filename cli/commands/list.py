"""`gradmux list`: every run under this home, and what state it is in."""

from __future__ import annotations

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json, stdout, table

COLUMNS = ("run", "state", "scheme", "done", "rounds", "billed", "begun (UTC)", "")


@command("list", example="gradmux list --json")
@pass_settings
def list_command(settings: Settings) -> None:
    """List all runs: which run now, which are done, which can be resumed."""
    from gradmux.orchestrator.runs.index import statuses

    found = statuses(settings.home)
    if settings.json:
        print_json({"home": str(settings.home), "runs": [status.to_dict() for status in found]})
        return
    if not found:
        stdout().print(f"There are no runs under {settings.home}; `gradmux submit` makes one.")
        return
    rows = [
        (
            status.run,
            status.state.value,
            status.scheme,
            f"{100 * status.share:.0f} %",
            str(status.rounds),
            f"{status.billed_s:.1f} s",
            status.created.partition("+")[0].replace("T", " "),
            status.reason,
        )
        for status in found
    ]
    stdout().print(table(COLUMNS, rows, right=("done", "rounds", "billed")))
