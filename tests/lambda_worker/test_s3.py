"""The S3 door: retries by a client that misbehaves on schedule, and the whole handler over moto's HTTP server."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError
from moto.server import ThreadedMotoServer

from gradmux.lambda_worker import handler as handler_module
from gradmux.lambda_worker.contract import ReplyMode, decode_result, encode_request, parse_reply
from gradmux.lambda_worker.objects import MemoryObjects, MissingObject, ObjectStore, StoreError
from gradmux.lambda_worker.s3 import ATTEMPTS, S3Objects, client
from tests.lambda_worker.test_handler import task
from tests.lambda_worker.workbench import Workbench


class Scheduled:
    """An S3 client whose calls meet these exceptions in order, and then succeed."""

    def __init__(self, *troubles: Exception, body: bytes = b"0123456789") -> None:
        self.troubles = list(troubles)
        self.body = body
        self.calls: list[dict[str, Any]] = []

    def get_object(self, **request: Any) -> dict[str, Any]:
        self._meet(request)
        return {"Body": io.BytesIO(self.body)}

    def put_object(self, **request: Any) -> dict[str, Any]:
        self._meet(request)
        return {}

    def _meet(self, request: dict[str, Any]) -> None:
        self.calls.append(request)
        if self.troubles:
            raise self.troubles.pop(0)


def refused(code: str, status: int) -> ClientError:
    response = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "GetObject")  # type: ignore[arg-type]


def slow_down() -> ClientError:
    return refused("SlowDown", 503)


TRANSIENT = [
    slow_down(),
    refused("InternalError", 500),
    refused("RequestTimeout", 400),
    refused("Throttling", 429),
    EndpointConnectionError(endpoint_url="http://x"),
    ReadTimeoutError(endpoint_url="http://x"),
]


@pytest.mark.parametrize("trouble", TRANSIENT, ids=lambda trouble: type(trouble).__name__)
def test_transient_trouble_is_waited_out(trouble: Exception) -> None:
    waits: list[float] = []
    s3 = Scheduled(trouble, trouble)
    assert S3Objects(s3, "b", waits.append).get("k") == b"0123456789"
    S3Objects(s3, "b", waits.append).put("k", b"")
    assert len(s3.calls) == 4
    assert len(waits) == 2
    assert all(0 <= wait <= 3.2 for wait in waits)


def test_patience_is_bounded_and_waits_grow_at_random() -> None:
    waits: list[float] = []
    s3 = Scheduled(*(slow_down() for _ in range(100)))
    with pytest.raises(StoreError, match=r"s3://b/k: gave up after 6 attempts: .*SlowDown"):
        S3Objects(s3, "b", waits.append).get("k")
    assert len(s3.calls) == ATTEMPTS
    assert len(waits) == ATTEMPTS - 1
    assert len(set(waits)) == len(waits)
    assert all(wait <= 0.1 * 2**attempt for attempt, wait in enumerate(waits))


@pytest.mark.parametrize("trouble", [refused("AccessDenied", 403), NoCredentialsError(), refused("InvalidRange", 416)])
def test_what_waiting_does_not_help_is_reported_at_once(trouble: Exception) -> None:
    s3 = Scheduled(trouble)
    with pytest.raises(StoreError, match="s3://b/k"):
        S3Objects(s3, "b", pytest.fail).get("k")
    assert len(s3.calls) == 1


def test_a_short_range_is_no_answer() -> None:
    s3 = Scheduled(body=b"123")
    with pytest.raises(StoreError, match="has no bytes 4 to 9"):
        S3Objects(s3, "b").get_range("k", 4, 9)
    assert s3.calls[0]["Range"] == "bytes=4-8"


# --- over HTTP ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def s3(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The worker's own client, made anew from the environment of a local emulator."""
    for name, value in {
        "AWS_ENDPOINT_URL_S3": server,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "TMPDIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    client.cache_clear()
    handler_module._worker.cache_clear()
    made = client()
    made.create_bucket(Bucket="bucket")
    yield made
    client.cache_clear()
    handler_module._worker.cache_clear()


@pytest.mark.parametrize("store", ["memory", "s3"])
def test_every_store_keeps_the_same_promises(store: str, request: pytest.FixtureRequest) -> None:
    objects: ObjectStore = (
        MemoryObjects() if store == "memory" else S3Objects(request.getfixturevalue("s3"), "bucket", pytest.fail)
    )
    objects.put("some/key", b"0123456789")
    objects.put("some/key", b"abcdefghij")
    assert objects.get("some/key") == b"abcdefghij"
    assert objects.get_range("some/key", 2, 5) == b"cde"
    assert objects.get_range("some/key", 0, 10) == b"abcdefghij"
    for missing in (lambda: objects.get("no"), lambda: objects.get_range("no", 0, 1)):
        with pytest.raises(MissingObject, match="no"):
            missing()
    for beyond in ((8, 11), (10, 12)):
        with pytest.raises(StoreError):
            objects.get_range("some/key", *beyond)


def test_the_client_is_made_for_a_custom_endpoint_and_retries_nothing_by_itself(s3: Any, server: str) -> None:
    assert client() is s3
    assert s3.meta.endpoint_url == server
    config = s3.meta.config
    assert config.retries["total_max_attempts"] == 1
    assert config.request_checksum_calculation == config.response_checksum_validation == "when_required"


def test_the_handler_over_http(s3: Any, bench: Workbench, tmp_path: Path) -> None:
    """The same request as in memory, through the module's own entry point: the same bits, and a spilled result."""
    wanted = bench.request(task(bench), task(bench, 1), reply=ReplyMode(prefix="p/", max_inline=940))
    in_memory = bench.ask(wanted)
    for key, body in bench.objects.objects.items():
        s3.put_object(Bucket="bucket", Key=key, Body=body)
    reply = parse_reply(handler_module.handler(json.loads(encode_request(wanted)), None))
    assert reply.results == in_memory.results
    inline, spilled = sorted(reply.results, key=lambda result: result.key is not None)
    assert inline.buffer is not None
    stored = s3.get_object(Bucket="bucket", Key=spilled.key)["Body"].read()
    assert (decode_result(stored)[0] == decode_result(inline.buffer)[0]).all()
    assert (tmp_path / "gradmux-cache").is_dir()
    again = parse_reply(handler_module.handler(json.loads(encode_request(wanted)), None))
    assert (reply.timing.cold, again.timing.cold) == (True, False)


def test_awss_runtime_writes_no_more_bytes_than_we_count(bench: Workbench) -> None:
    """awslambdaric's own encoder over a reply that we filled up to the byte."""
    from awslambdaric.lambda_runtime_marshaller import to_json

    wanted = bench.request(task(bench), task(bench, 1, "broken"))
    kept = []
    for limit in range(700, 2400, 83):
        limited = bench.request(*wanted.tasks, reply=ReplyMode("auto", prefix="p/", max_inline=limit))
        reply = bench.worker.answer(json.loads(encode_request(limited)))
        kept.append(any("buffer" in result for result in reply["results"]))
        assert len(to_json(reply).encode()) <= limit or not kept[-1]
    assert kept == sorted(kept)
    assert set(kept) == {False, True}


def test_a_forked_child_uses_the_client_that_its_parent_made(s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key="k", Body=b"from the parent")
    client.cache_clear()
    fresh = client()  # as a zygote has it: made, never used
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, S3Objects(fresh, "bucket").get("k"))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer == b"from the parent"
