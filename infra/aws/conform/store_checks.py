"""What we assume of S3: through our own client, as a run uses it. Read next: `report.py`."""

from __future__ import annotations

import uuid
from typing import Any

from botocore.exceptions import ClientError

from gradmux.infra.aws.conform.checks import Check, Place, require
from gradmux.orchestrator.clock import Clock, seconds
from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.s3.by_botocore import BotocoreS3
from gradmux.orchestrator.store import S3Store

LARGE_BYTES = 9 << 20
PAGE = 1000
ODD_KEYS = (
    *(
        "a b",
        "a+b",
        "a%20b",
        "a%2Fb",
        "ünï/日本",
        "a&b=c",
        "a'b",
        "a(b)",
        "a~b",
        "a,b;c",
        "a!b*c",
        "a:b@c",
        "UPPER/lower",
    ),
    "x" * 200,
)
SKEW_S = 3600.0


def store_checks(place: Place) -> list[Check]:
    """In an order in which the first ones are the ones that all else needs."""
    asker = Asker(place)
    return [
        Check("s3.put-get", "what is put comes back, at once", asker.put_get),
        Check("s3.range", "a range of bytes comes alone, and one beyond the end is cut", asker.ranges),
        Check("s3.missing", "a missing object is told from a forbidden one, for HEAD too", asker.missing),
        Check("s3.large", f"an object of {LARGE_BYTES >> 20} MB comes back whole", asker.large),
        Check("s3.odd-keys", "keys with spaces, signs and letters of all kinds name what they say", asker.odd_keys),
        Check("s3.list", f"a listing of more than {PAGE} keys has all of them, in order", asker.pages),
        Check("s3.delete", "many objects go at once, and missing ones are no error", asker.delete),
        Check("s3.condition", "If-None-Match: * puts only what is not there", asker.condition),
        Check("s3.no-bucket", "a missing bucket is NoSuchBucket", asker.no_bucket),
        Check("s3.signature", "a wrong signature is refused with 403", asker.wrong_signature),
        Check("s3.clock", "a date that is an hour off is refused, and the right time told", asker.clock),
    ]


class Asker:
    """Asks S3. Each check's method returns what it saw, and deletes what it put."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._store = S3Store(place.bucket, endpoint_url=place.s3_url, session=place.session, patience_s=10.0)
        self._prefix = f"runs/conform-{uuid.uuid4().hex[:12]}/results/"

    def put_get(self) -> str:
        body = bytes(range(256))
        with self._put("a", body) as key:
            require(self._store.get(key) == body, "the same bytes", "others")
            self._store.put(key, b"")
            require(self._store.get(key) == b"", "the last that was put", "an older one")
        return "256 bytes, then none"

    def ranges(self) -> str:
        with self._put("range", b"0123456789") as key:
            require(self._store.get_range(key, 2, 5) == b"234", "bytes 2 to 4", self._store.get_range(key, 2, 5))
            require(self._store.get_range(key, 8, 99) == b"89", "bytes 8 and 9", self._store.get_range(key, 8, 99))
        return "2-4 and 8-98 of 10"

    def missing(self) -> str:
        require(not self._store.exists(self._prefix + "none"), "HEAD to say that it is not there", "that it is")
        try:
            self._store.get(self._prefix + "none")
        except FileNotFoundError:
            return "404"
        raise AssertionError("a missing object was read")

    def large(self) -> str:
        body = uuid.uuid4().bytes * (LARGE_BYTES // 16)
        with self._put("large", body) as key:
            require(self._store.view(key) == body, "the same bytes", "others")
        return f"{len(body):,} bytes"

    def odd_keys(self) -> str:
        keys = [f"{self._prefix}odd/{key}" for key in ODD_KEYS]
        try:
            for key in keys:
                self._store.put(key, key.encode())
            wrong = [key for key in keys if self._store.get(key) != key.encode()]
            require(not wrong, "each key's own content", wrong)
            require(self._store.list(f"{self._prefix}odd/") == sorted(keys), "all keys in the list", "others")
        finally:
            self._store.delete(keys)
        return f"{len(keys)} keys"

    def pages(self) -> str:
        keys = [f"{self._prefix}many/{number:05}" for number in range(PAGE + 1)]
        try:
            self._store.put_many(dict.fromkeys(keys, b""))
            found = self._store.list(f"{self._prefix}many/")
            require(found == keys, f"{len(keys)} keys", f"{len(found)}")
        finally:
            self._store.delete(keys)
        return f"{len(keys)} keys"

    def delete(self) -> str:
        keys = [f"{self._prefix}gone/{number}" for number in range(5)]
        self._store.put_many(dict.fromkeys(keys, b""))
        self._store.delete([*keys, f"{self._prefix}gone/never"])
        require(self._store.list(f"{self._prefix}gone/") == [], "nothing left", "some")
        return "5 and a missing one"

    def condition(self) -> str:
        key = self._prefix + "lock"
        try:
            told = [self._store.create(key, b"first"), self._store.create(key, b"second")]
            require(told == [True, False], "[True, False]", told)
            require(self._store.get(key) == b"first", "the first's content", "the second's")
        finally:
            self._store.delete([key])
        return "the second put was refused"

    def no_bucket(self) -> str:
        store = S3Store(
            f"gradmux-none-{uuid.uuid4().hex[:12]}",
            endpoint_url=self._place.s3_url,
            session=self._place.session,
            patience_s=5.0,
        )
        try:
            store.put("k", b"")
        except PreflightError as error:
            require("there is no bucket" in str(error), "NoSuchBucket", error)
            return "NoSuchBucket"
        raise AssertionError("an object was put into no bucket")

    def wrong_signature(self) -> str:
        credentials: Any = self._place.session.get_credentials()
        frozen = credentials.get_frozen_credentials()
        client: Any = self._place.session.create_client(
            "s3",
            endpoint_url=self._place.s3_url,
            aws_access_key_id=frozen.access_key,
            aws_secret_access_key="wrong",
            aws_session_token=frozen.token,
        )
        try:
            client.list_objects_v2(Bucket=self._place.bucket, MaxKeys=1)
        except ClientError as error:
            told: Any = error.response
            require(told["ResponseMetadata"]["HTTPStatusCode"] == 403, "403", error)
            return str(told["Error"]["Code"])
        require(False, "403", "an answer: signatures are not looked at")
        raise AssertionError

    def clock(self) -> str:
        clock = Clock()
        client = BotocoreS3(self._place.bucket, self._store.endpoint, self._place.session, _Ahead(), attempts=1)
        told = client.why(self._prefix + "clock")
        require(told is not None, "RequestTimeTooSkewed", "an answer: dates are not looked at")
        require(not isinstance(told, str), "RequestTimeTooSkewed", told)
        code, date = getattr(told, "code", ""), getattr(told, "date", "")
        require(code == "RequestTimeTooSkewed", "RequestTimeTooSkewed", code)
        require(clock.corrected(date, clock.now() + SKEW_S) and seconds(date) is not None, "the right time", date)
        return f"{code}, {date}"

    def _put(self, name: str, body: bytes) -> _Object:
        return _Object(self._store, self._prefix + name, body)


class _Ahead(Clock):
    """A clock that is an hour ahead."""

    def now(self) -> float:
        return super().now() + SKEW_S


class _Object:
    """An object for as long as the context is open."""

    def __init__(self, store: S3Store, key: str, body: bytes) -> None:
        self._store, self._key, self._body = store, key, body

    def __enter__(self) -> str:
        self._store.put(self._key, self._body)
        return self._key

    def __exit__(self, *_: object) -> None:
        self._store.delete([self._key])
