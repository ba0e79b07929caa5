"""What goes wrong in S3: requests that are told to slow down, and snapshots that are gone when somebody reads them.

Lives in the S3 process; its plan comes through an admin path of that process. Which requests are hurt depends on the
seed and on their order. Knows no sockets. Used by `s3.py`; the faults of Lambda's calls are in `faults.py`.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from urllib.parse import unquote

from gradmux.infra.local.faults import NO_FAULTS, FaultKind, FaultPlan
from gradmux.infra.local.names import ADMIN
from gradmux.infra.local.s3_objects import OBJECT_PATH, ObjectAnswer, backend
from gradmux.infra.local.seeded import uniform

PATH = f"{ADMIN}s3"
SNAPSHOTS = "/weights/"
"""Only these are lost: a key that holds this belongs to a run's snapshot of weights."""
XML = "application/xml"
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate. (injected)</Message></Error>"


class S3Faults:
    """Decides request by request. Threads may ask at once."""

    def __init__(self, plan: FaultPlan = NO_FAULTS) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self._asked = 0
        self._counts: Counter[str] = Counter()

    def admin(self, method: str, body: bytes) -> ObjectAnswer:
        """POST replaces the plan, GET tells how often what has happened."""
        with self._lock:
            if method == "POST":
                self._plan = FaultPlan.from_json(json.loads(body))
            return ObjectAnswer(
                200, {"Content-Type": "application/json"}, json.dumps({"faults": self._counts}).encode()
            )

    def hurt(self, method: str, path: str) -> ObjectAnswer | None:
        """The answer in place of the true one; None: nothing is wrong, or what is asked for is gone now."""
        with self._lock:
            self._asked += 1
            slow = self._happens(FaultKind.SLOW_DOWN)
            lost = not slow and method == "GET" and SNAPSHOTS in path and self._happens(FaultKind.LOST)
        if lost and not _remove(path):
            return None
        for kind in [FaultKind.SLOW_DOWN] * slow + [FaultKind.LOST] * lost:
            self._counts[kind.value] += 1
        return ObjectAnswer(503, {"Content-Type": XML}, SLOW_DOWN) if slow else None

    def _happens(self, kind: FaultKind) -> bool:
        rate = self._plan.rate(kind)
        return rate > 0 and uniform(self._plan.seed, kind.value, self._asked, 0, 0) < rate


def _remove(path: str) -> bool:
    """Takes an object away; False when it is not there."""
    found = OBJECT_PATH.fullmatch(path.partition("?")[0])
    store = backend()
    if found is None or found[1] not in store.buckets or store.get_object(found[1], unquote(found[2])) is None:
        return False
    store.delete_object(found[1], unquote(found[2]))
    return True
