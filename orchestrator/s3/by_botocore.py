"""S3 over botocore, at the time of day that S3 itself told: for a machine whose clock is wrong, and to ask why.

The fast client (`settings.py`) signs with this machine's clock and cannot be told another one, and hears no reason
where S3 answers without a body (HEAD, redirections). This one takes ten times its processor time. Raises what botocore
raises, and FileNotFoundError and FileExistsError. Read next: `store.py`, which tells the errors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import botocore.session
from botocore.auth import AUTH_TYPE_MAPS, SIGV4_TIMESTAMP, S3SigV4Auth
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from gradmux.orchestrator.aws import Endpoint, find_credentials, renewing
from gradmux.orchestrator.clock import Clock
from gradmux.orchestrator.moving import moves
from gradmux.orchestrator.s3.cause import Cause, stranger_told
from gradmux.orchestrator.strangers import page_told

SIGNATURE = "s3v4-at-the-servers-time"
AT_S = "gradmux_at_s"
"""name in a request's context: the instant that it is signed with, in seconds since 1970"""
CONNECT_S = 5.0
ANSWER_S = 60.0
ATTEMPTS = 5
DELETED_AT_ONCE = 1000
MISSING = ("404", "NoSuchKey")
THERE = ("412", "PreconditionFailed")


class _AtServersTime(S3SigV4Auth):
    """S3's signature with the instant that the request's context says."""

    def _set_necessary_date_headers(self, request: Any) -> None:
        request.context["timestamp"] = time.strftime(SIGV4_TIMESTAMP, time.gmtime(request.context[AT_S]))
        super()._set_necessary_date_headers(request)  # type: ignore[misc]


AUTH_TYPE_MAPS.setdefault(SIGNATURE, _AtServersTime)


class BotocoreS3:
    """One bucket, or the part of it under `prefix`."""

    def __init__(
        self,
        bucket: str,
        endpoint: Endpoint,
        session: botocore.session.Session,
        clock: Clock,
        *,
        prefix: str = "",
        attempts: int = ATTEMPTS,
    ) -> None:
        """`clock` is looked at anew for every request."""
        self._bucket, self._prefix, self._clock = bucket, prefix.rstrip("/") + "/" if prefix else "", clock
        config = Config(
            signature_version=SIGNATURE,
            retries={"total_max_attempts": attempts, "mode": "standard"},
            connect_timeout=CONNECT_S,
            read_timeout=ANSWER_S,
            s3={"addressing_style": "path" if endpoint.custom else "auto"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self.client: Any = session.create_client(
            "s3", endpoint_url=endpoint.url if endpoint.custom else None, region_name=endpoint.region, config=config
        )
        self.client.meta.events.register("before-sign.s3", self._date)
        self._session = session

    def renew_credentials(self) -> None:
        """Has them renewed where they expire soon. Raises CredentialTrouble."""
        with renewing():
            find_credentials(self._session).get_frozen_credentials()

    def put(self, key: str, data: bytes | memoryview) -> None:
        self.client.put_object(**self._at(key), Body=bytes(data))

    def create(self, key: str, data: bytes) -> None:
        """Raises FileExistsError."""
        try:
            self.client.put_object(**self._at(key), Body=data, IfNoneMatch="*")
        except ClientError as error:
            if error.response["Error"]["Code"] in THERE:
                raise FileExistsError(key) from error
            raise

    def view(self, key: str) -> memoryview:
        return memoryview(self._read(key))

    def pieces(self, key: str) -> Iterator[memoryview]:
        yield self.view(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self._read(key, Range=f"bytes={start}-{end - 1}")

    def head(self, key: str) -> None:
        try:
            self.client.head_object(**self._at(key))
        except ClientError as error:
            raise _missing(error, key) from error

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETED_AT_ONCE):
            objects = [{"Key": self._prefix + key} for key in keys[start : start + DELETED_AT_ONCE]]
            self.client.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})

    def list(self, prefix: str) -> Iterator[str]:
        return (key for key, _ in self.sizes(prefix))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Keys of whatever kind, with the bytes of each object; asks for the next thousand when it comes to them."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix + prefix)
        for page in pages:
            for found in page.get("Contents", ()):
                yield found["Key"].removeprefix(self._prefix), int(found["Size"])

    def why(self, key: str) -> Cause | str | None:
        """Why S3 refuses this key now: its cause, one line about a stranger's answer, or None where all is well."""
        try:
            answer = self.client.get_object(**self._at(key), Range="bytes=0-0")
        except ClientError as error:
            return cause_of(error)
        except (BotoCoreError, ResponseParserError) as error:
            return page_told(str(error)) or None
        about = answer["ResponseMetadata"]
        with answer["Body"] as body:
            return stranger_told(about["HTTPStatusCode"], about["HTTPHeaders"], body.read(1024)) or None

    def _read(self, key: str, **options: str) -> bytes:
        try:
            found = self.client.get_object(**self._at(key), **options)
            moves(found["ContentLength"])
            with found["Body"] as body:
                content: bytes = body.read()
        except ClientError as error:
            raise _missing(error, key) from error
        return content

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _date(self, request: Any, **_: Any) -> None:
        """Dates a request; and has a redirection told instead of followed to some other endpoint."""
        request.context[AT_S] = self._clock.now()
        request.context.setdefault("s3_redirect", {})["redirected"] = True


def cause_of(error: ClientError) -> Cause | str | None:
    """Why S3 refused, as botocore has read it; a line where it was not S3 that did; None: there is no such object."""
    told: Any = error.response
    about, said = told["ResponseMetadata"], told.get("Error", {})
    code, message = str(said.get("Code", "")), str(said.get("Message", ""))
    status, headers = about["HTTPStatusCode"], about["HTTPHeaders"]
    if code in MISSING:
        return None
    stranger = stranger_told(status, headers, message.encode())
    return stranger or Cause.of_response(status, headers, code, message, str(said.get("ServerTime", "")))


def _missing(error: ClientError, key: str) -> Exception:
    return FileNotFoundError(key) if error.response["Error"]["Code"] in MISSING else error
