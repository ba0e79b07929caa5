"""The backend "aws": the function and bucket that [cluster] names, found and reached as AWS's own tools do.

Imports boto3 only where an account is asked. Read next: `preflight.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gradmux.orchestrator.backends import Examination, Limits, Pace, PlaceNote
from gradmux.orchestrator.config import JobConfig, Section
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.prices import PRICES, Prices

if TYPE_CHECKING:
    from gradmux.infra.lambda_place import LambdaPlace
    from gradmux.orchestrator.delays.calls import CallDelays
    from gradmux.orchestrator.findings import Finding
    from gradmux.orchestrator.ports import Packages, StoreClient

NAME = "aws"
WHOLE_CPU_MB = 1769
"""A function with so much memory has one processor; with less, a part of one."""
S3_BYTES_PER_S = 75e6
"""What one worker reads from S3, or writes there: an assumption."""
S3_FIRST_BYTE_S = 0.03
"""From a worker's request to S3 until its answer begins: an assumption."""
DELAYS = "lambda-like"


class AwsBackend:
    """`backends.Backend` over AWS Lambda and S3."""

    name = NAME
    mirrored = True
    workers_outlive_run = True

    @property
    def limits(self) -> Limits:
        from gradmux.infra.lambda_place import LIMITS

        return LIMITS

    @property
    def prices(self) -> Prices:
        return PRICES

    @property
    def sections(self) -> Mapping[str, type[Section]]:
        """None: `function` and `bucket` stand in [cluster]."""
        return {}

    def validate(self, job: JobConfig) -> None:
        if job.cluster.bucket is None:
            raise ConfigError(
                'cluster: backend = "aws" needs bucket, the name of an S3 bucket that the function may use'
            )

    def prepare(self, job: JobConfig, folder: Path) -> JobConfig:
        return job

    def packages(self, job: JobConfig) -> Packages:
        from gradmux.infra.aws.account import open_account
        from gradmux.infra.aws.packages import packages_of

        return packages_of(open_account(), job.cluster.function)

    @contextmanager
    def open(self, job: JobConfig, life: int = 0) -> Iterator[LambdaPlace]:
        from gradmux.infra.aws.account import open_account
        from gradmux.infra.aws.preflight import billed_as, require_concurrency
        from gradmux.infra.lambda_place import LambdaPlace
        from gradmux.orchestrator.aws import new_session

        cluster = job.cluster
        assert cluster.bucket is not None, "checked by `validate`"
        door = open_account()
        require_concurrency(door, cluster)
        billed = billed_as(door, cluster)
        yield LambdaPlace(NAME, new_session, cluster.bucket, cluster.function, cluster.timeout_s, billed=billed)

    def reopen(self, note: PlaceNote) -> StoreClient:
        from gradmux.infra.lambda_place import reopened
        from gradmux.orchestrator.aws import new_session

        return reopened(note, new_session())

    def delays(self, job: JobConfig) -> CallDelays:
        """What Lambda's are like, on top of the computation."""
        import numpy as np

        from gradmux.orchestrator.delays.calls import CallDelays, How
        from gradmux.orchestrator.delays.find import find_profile

        profile = find_profile(DELAYS, workers=job.cluster.most_workers, seed=job.training.seed)
        return CallDelays(DELAYS, How.ADDED, np.maximum(profile.delays_at(0.0), 0.0))

    def pace(self, job: JobConfig) -> Pace:
        slower = max(1.0, WHOLE_CPU_MB / job.cluster.memory_mb)
        return Pace(
            slower,
            moving_bytes_per_s=S3_BYTES_PER_S,
            first_byte_s=S3_FIRST_BYTE_S,
            summing_bytes_per_s=S3_BYTES_PER_S,
        )

    def examine(self, asked: Examination) -> Iterator[Finding]:
        from gradmux.infra.aws.doctor.backend import examine

        return examine(asked)


AWS = AwsBackend()
