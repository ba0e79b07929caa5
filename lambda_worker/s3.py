"""`ObjectStore` over S3, with boto3.

The client is made once per process, by `client()`. A zygote may call it before it forks: a fresh client holds no
connection, so children share nothing but memory. Endpoint, region and credentials come from AWS's own environment
variables. Retries are ours alone: botocore's are off, so that one call here is one request unless we say otherwise.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError, IncompleteReadError

from gradmux.lambda_worker.objects import MissingObject, ShortObject, StoreError

__all__ = ["S3Objects", "client"]

T = TypeVar("T")

ATTEMPTS = 6
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 3.2
MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
SHORT = frozenset({"InvalidRange", "416"})
TRANSIENT_STATUS = frozenset({429, 500, 502, 503, 504})
TRANSIENT_CODES = frozenset({"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "InternalError"})

# Not the random module's shared state: forked workers would all draw the same "random" waits.
JITTER = random.SystemRandom()


@lru_cache(maxsize=1)
def client() -> Any:
    """This process's S3 client."""
    custom = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    # Stores that only speak S3's language often refuse the checksums that newer clients add by themselves.
    checksums: Literal["when_required", "when_supported"] = "when_required" if custom else "when_supported"
    session = boto3.session.Session()
    return session.client(
        "s3",
        config=Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=5,
            read_timeout=30,
            max_pool_connections=16,
            request_checksum_calculation=checksums,
            response_checksum_validation=checksums,
            s3={"addressing_style": "path" if custom else "auto"},
        ),
    )


class S3Objects:
    """The objects of one bucket."""

    def __init__(self, s3: Any, bucket: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._sleep = sleep

    def get(self, key: str) -> bytes:
        return self._retrying(key, lambda: self._read(key))

    def get_range(self, key: str, lo: int, hi: int) -> bytes:
        body = self._retrying(key, lambda: self._read(key, Range=f"bytes={lo}-{hi - 1}"))
        if len(body) != hi - lo:
            raise ShortObject(f"s3://{self._bucket}/{key}: has no bytes {lo} to {hi}")
        return body

    def put(self, key: str, body: bytes) -> None:
        self._retrying(key, lambda: self._s3.put_object(Bucket=self._bucket, Key=key, Body=body))

    def _read(self, key: str, **byte_range: str) -> bytes:
        response = self._s3.get_object(Bucket=self._bucket, Key=key, **byte_range)
        return bytes(response["Body"].read())

    def _retrying(self, key: str, request: Callable[[], T]) -> T:
        """The request's answer; transient failures are tried again after a random wait, a bounded number of times."""
        where, problem = f"s3://{self._bucket}/{key}", ""
        for attempt in range(ATTEMPTS):
            try:
                return request()
            except ClientError as error:
                problem = str(error)
                if error.response.get("Error", {}).get("Code") in MISSING:
                    raise MissingObject(f"{where}: does not exist") from error
                if error.response.get("Error", {}).get("Code") in SHORT:
                    raise ShortObject(f"{where}: is shorter than what was asked of it") from error
                if not _transient(error):
                    raise StoreError(f"{where}: {error}") from error
            except (ConnectionError, HTTPClientError, IncompleteReadError) as error:
                problem = f"{type(error).__name__}: {error}"
            except BotoCoreError as error:  # no credentials, no region, bad parameters: waiting will not help
                raise StoreError(f"{where}: {error}") from error
            if attempt + 1 < ATTEMPTS:
                self._sleep(JITTER.uniform(0.0, min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt)))
        raise StoreError(f"{where}: gave up after {ATTEMPTS} attempts: {problem}")


def _transient(error: ClientError) -> bool:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in TRANSIENT_STATUS or error.response.get("Error", {}).get("Code") in TRANSIENT_CODES
