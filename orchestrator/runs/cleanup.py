"""What a life that ends does to the store: tells its workers to stop, and removes what only its run needed.

That is what the run has there for its workers alone: snapshots, results, sums. A run that is resumed publishes its own
anew, so that those of a former life are never read again; what resume needs lies elsewhere (`mirror.py`). Knows
neither loop nor scheme. Read next: `orchestrator/store.py`, for the names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gradmux.lambda_worker.contract import cancel_marker
from gradmux.orchestrator.errors import RunStopped
from gradmux.orchestrator.ports import Store, StoreClient
from gradmux.orchestrator.store import Keys

if TYPE_CHECKING:
    from gradmux.orchestrator.runs.assemble import Assembly

log = logging.getLogger(__name__)

RECALL_S = 5.0
"""how long a run that ends early tries to tell its workers"""
CLEAN_S = 10.0
"""how long it tries to remove what it has in the store"""


def recall(life: Assembly) -> None:
    """Tells the workers of this life not to compute any more, if there are any and the store can be reached."""
    if life.place.ended():
        return
    marker = cancel_marker(life.life.epoch)
    if not life.store.at_once(lambda client: client.put(life.keys.cancel, marker), RECALL_S):
        log.warning("the workers could not be told to stop: the store does not answer")


def clean(life: Assembly) -> None:
    """Removes from the store what only this run needed, which is done."""
    try:
        life.store.delete(leftovers(life.store, life.keys))
    except RunStopped as error:
        log.warning("objects under %s stay in the store: %s", life.keys.prefix, error)


def clean_at_once(life: Assembly) -> None:
    """The same when the run ends early: whoever resumes it needs other objects, and perhaps nobody does."""
    if life.place.ended():
        return

    def remove(client: StoreClient) -> None:
        client.delete(leftovers(client, life.keys, life.life.epoch))

    if not life.store.at_once(remove, CLEAN_S):
        log.info("objects under %s stay in the store until the run is done", life.keys.prefix)


def leftovers(store: Store, keys: Keys, until: int | None = None) -> list[str]:
    """Keys of all lives, or of those up to number `until`: a later one may be at work on another machine."""
    found = [key for prefix in (keys.snapshots, keys.results) for key in store.list(prefix)]
    return found if until is None else [key for key in found if keys.life_of(key) <= until]
