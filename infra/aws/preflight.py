"""What a job on AWS must know of account and function before anybody is called: the limit on calls, and what is billed.

Who may only call functions cannot ask, and goes on without. Read next: `infra/aws/doctor/account.py`, which judges.
"""

from __future__ import annotations

import logging

from gradmux.infra.aws.doctor import Level, Needs
from gradmux.infra.aws.doctor.account import concurrency
from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import AwsError
from gradmux.orchestrator.backends import Billed
from gradmux.orchestrator.config import ClusterConfig
from gradmux.orchestrator.errors import QuotaError

log = logging.getLogger(__name__)


def require_concurrency(door: Door, cluster: ClusterConfig) -> None:
    """Raises QuotaError that says what to do."""
    needs = Needs(cluster.function, cluster.bucket or "", workers=cluster.most_workers, concurrency=cluster.concurrency)
    try:
        (found,) = concurrency(door, needs)
    except AwsError as error:
        log.info("the account's limits are not known: %s", error)
        return
    if found.level is Level.FAILURE:
        raise QuotaError(f"{found.says}: {found.do}")
    if found.level is Level.WARNING:
        log.warning("%s: %s", found.says, found.do)


def billed_as(door: Door, cluster: ClusterConfig) -> Billed:
    """Memory and architecture of the function. Warns when its memory is not what the job says."""
    try:
        told = door.call("lambda", "get_function", {"FunctionName": cluster.function})["Configuration"]
    except AwsError as error:
        log.info("the function's memory is not known: %s", error)
        return Billed()
    memory_mb: int = told["MemorySize"]
    if memory_mb != cluster.memory_mb:
        log.warning(
            "the function has %d MB, and is billed so; the job says cluster.memory_mb = %d",
            memory_mb,
            cluster.memory_mb,
        )
    return Billed(memory_mb, "arm64" in told.get("Architectures", ()))
