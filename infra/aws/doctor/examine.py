"""The doctor's round: from what everything depends on to what depends on everything.

A check that could not be made because AWS refuses the question is a failure that says so. Read next: `account.py`,
`function.py`, `handshake.py`, `bucket.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gradmux.infra.aws.doctor import account, bucket, function, handshake, machine
from gradmux.infra.aws.doctor.needs import Needs
from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import ApiError, AwsError
from gradmux.orchestrator.findings import Finding, Level, failure

Check = Callable[[Door, Needs], Iterator[Finding]]


def examine_account(door: Door, needs: Needs, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Every finding, as soon as it is made. `now` is this machine's clock, seconds since 1970."""
    yield from machine.descriptors(needs)
    yield from _guarded("endpoints", machine.endpoints, door, needs)
    reached = True
    for finding in account.identity(door, now):
        reached = reached and finding.level is not Level.FAILURE
        yield finding
    if not reached:
        return
    yield from _guarded("concurrency", account.concurrency, door, needs)
    yield from _guarded("bucket", bucket.from_here, door, needs)
    found = function.find(door, needs.function)
    if isinstance(found, Finding):
        yield found
        return
    yield from function.examine(found, needs)
    yield from _guarded("handshake", handshake.examine, door, needs)
    yield from _guarded("worker's bucket", bucket.from_the_worker, door, needs)


def _guarded(name: str, check: Check, door: Door, needs: Needs) -> Iterator[Finding]:
    """The check's findings; when AWS refuses to be asked, a failure of that name."""
    try:
        yield from check(door, needs)
    except ApiError as error:
        do = f"ask for the right to do {error.operation}, see `gradmux deploy --policies`"
        yield failure(name, str(error), do if "Denied" in error.code else "see what AWS says")
    except AwsError as error:
        yield failure(name, str(error), "check network, endpoint and region")
