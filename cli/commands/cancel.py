"""`gradmux cancel`: ends a run, and says what can still be billed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gradmux.cli.numbers import FiniteFloat
from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json, stderr

if TYPE_CHECKING:
    from gradmux.orchestrator.runs.life import Life
    from gradmux.orchestrator.runs.paths import RunPaths


@command("cancel", example="gradmux cancel digits-1")
@click.argument("run")
@click.option("--wait", "wait_s", default=960.0, show_default=True, type=FiniteFloat(0), help="Seconds, at most.")
@pass_settings
def cancel_command(settings: Settings, run: str, wait_s: float) -> None:
    """Cancel RUN: workers that have not begun do not compute, its process saves the models and ends.

    Returns when nothing is in flight any more, or says what still runs and for how long it can be billed. `gradmux
    resume` takes a cancelled run up again.
    """
    from gradmux.orchestrator.runs.cancelling import cancel
    from gradmux.orchestrator.runs.paths import find_run

    paths = find_run(settings.home, run)
    if not paths.result.exists():
        stderr(settings).print(f"Cancelling {paths.run}")
    cancelled = cancel(paths, lambda life: _tell_workers(paths, life), wait_s)
    print_json(cancelled.to_dict()) if settings.json else click.echo(cancelled.describe())


def _tell_workers(paths: RunPaths, life: Life) -> bool:
    """Puts the marker that workers look for before they compute. False when the store does not take it.

    Of a run without a process it also removes what that has left in the store for its workers: nobody else will.
    """
    from gradmux.lambda_worker.contract import cancel_marker
    from gradmux.orchestrator.backends import find_backend
    from gradmux.orchestrator.errors import PreflightError, RunStopped
    from gradmux.orchestrator.runs.leftovers import leftovers
    from gradmux.orchestrator.runs.life import store_name
    from gradmux.orchestrator.runs.lock import is_held
    from gradmux.orchestrator.store import Keys

    assert life.place is not None
    try:
        store = find_backend(life.place.backend).store_of(life.place)
    except PreflightError:
        return False
    keys = Keys(store_name(paths))
    try:
        store.put(keys.cancel, cancel_marker(life.epoch))
        if not is_held(paths.lock):
            store.delete(leftovers(store, keys, life.epoch))
    except (PreflightError, RunStopped):
        return False
    finally:
        store.close()
    return True
