"""Does a store keep "put this only if it is not there" (If-None-Match)? Found out before anything relies on it.

AWS does; a store that speaks S3's protocol may take the condition for a header that it does not know, and overwrite.
Then two processes could both believe that a run is theirs. Read next: `store.py`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable

from gradmux.orchestrator.aws import Endpoint
from gradmux.orchestrator.errors import PreflightError

AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".c2s.ic.gov", ".sc2s.sgov.gov")


class Conditions:
    """What is known of one store. Threads may ask at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._url = endpoint.url
        self._kept = endpoint.url.endswith(AWS_DOMAINS)
        self._looking = threading.Lock()

    def require(
        self,
        create: Callable[[str, bytes], bool],
        delete: Callable[[Iterable[str]], None],
        key: str,
        bucket: str,
    ) -> None:
        """Creates an object beside `key` twice, the first time. Raises PreflightError when both succeed."""
        with self._looking:
            if self._kept:
                return
            probe = f"{key}.probe-{uuid.uuid4().hex}"
            first, second = create(probe, b""), create(probe, b"")
            delete([probe])
            if not first or second:
                raise PreflightError(
                    f"bucket {bucket} at {self._url}: the store ignores If-None-Match, so that two runs could take the "
                    "same name: use another store, or a newer version of this one"
                )
            self._kept = True
