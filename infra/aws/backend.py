"""The backend "aws": the function and bucket that `cluster` names, found and reached as AWS's own tools do.

Read next: `preflight.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradmux.infra.aws.account import open_account
from gradmux.infra.aws.preflight import billed_as, require_concurrency
from gradmux.orchestrator.aws import new_session
from gradmux.orchestrator.backends import Place, PlaceNote
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.store import S3Store

REACH_S = 5.0
"""how long another process's store is tried"""


class AwsBackend:
    """`backends.Backend` over AWS Lambda and S3."""

    mirrored = True

    def check(self, config: JobConfig, folder: Path) -> JobConfig:
        return config

    @contextmanager
    def open(self, config: JobConfig, life: int = 0) -> Iterator[Place]:
        assert config.cluster.bucket is not None
        door = open_account()
        require_concurrency(door, config.cluster)
        billed = billed_as(door, config.cluster)
        yield Place(new_session, None, None, config.cluster.bucket, config.cluster.function, billed)

    def store_of(self, note: PlaceNote) -> S3Store:
        return S3Store(note.bucket, endpoint_url=note.s3_url, session=new_session(), patience_s=REACH_S)


AWS = AwsBackend()
