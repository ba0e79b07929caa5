"""What a life that ends does to the store: tells its workers to stop, and removes what only its run needed.

Knows neither loop nor scheme. Read next: `leftovers.py`, which says what may go.
"""

from __future__ import annotations

import logging

from gradmux.lambda_worker.contract import cancel_marker
from gradmux.orchestrator.errors import RunStopped
from gradmux.orchestrator.ports import StoreClient
from gradmux.orchestrator.runs.assemble import Assembly
from gradmux.orchestrator.runs.leftovers import leftovers

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
