"""What a run has in the store for its workers alone: snapshots, results, sums. A life that is over leaves them behind.

A run that is resumed publishes its own anew, so that nobody ever reads those of a former life again. What resume needs
lies elsewhere (`mirror.py`). Knows no S3. Read next: `orchestrator/store.py`, for the names.
"""

from __future__ import annotations

from gradmux.orchestrator.ports import Store
from gradmux.orchestrator.store import Keys


def leftovers(store: Store, keys: Keys, until: int | None = None) -> list[str]:
    """Keys of all lives, or of those up to number `until`: a later one may be at work on another machine."""
    found = [key for prefix in (keys.snapshots, keys.results) for key in store.list(prefix)]
    return found if until is None else [key for key in found if keys.life_of(key) <= until]
