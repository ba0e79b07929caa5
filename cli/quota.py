"""Refuses a job on AWS that the account's limit on calls at once does not fit, before anybody is called.

Knows no run. Read next: `infra/aws/doctor/account.py`, which asks and judges.
"""

from __future__ import annotations

import logging

from infra.aws.doctor import Level, Needs
from infra.aws.doctor.account import concurrency
from infra.aws.door import Door
from infra.aws.errors import AwsError
from orchestrator.config import ClusterConfig
from orchestrator.errors import QuotaError

log = logging.getLogger(__name__)


def require_concurrency(door: Door, cluster: ClusterConfig) -> None:
    """Raises QuotaError that says what to do. Who may only call functions cannot ask, and goes on."""
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
