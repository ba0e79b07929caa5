"""One suite for both stores; what only S3 has; and the names of keys."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from uuid import uuid4

import pytest

from gradmux.lambda_worker.contract import ReplyMode, Request, early_key, reply_key, result_key
from gradmux.orchestrator.errors import ConfigError, PreflightError
from gradmux.orchestrator.store import Keys, MemoryStore, S3Store, StoreUnavailable, digest, put_once

BUCKET = "gradmux-tests"


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> Iterator[MemoryStore | S3Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    request.getfixturevalue("aws_environment")
    opened = S3Store(BUCKET, prefix=uuid4().hex, endpoint_url=request.getfixturevalue("s3_endpoint"))
    yield opened
    opened.close()


def test_what_is_put_comes_back_whole_and_in_ranges(store: MemoryStore | S3Store) -> None:
    content = bytes(range(256)) * 5
    store.put("runs/a/x", content)
    assert store.get("runs/a/x") == content
    assert store.view("runs/a/x") == content
    assert store.get_range("runs/a/x", 10, 300) == content[10:300]
    assert store.get_range("runs/a/x", 1270, 9999) == content[1270:]
    assert store.get_range("runs/a/x", 5, 5) == b""


def test_the_last_put_counts_and_empty_objects_are_objects(store: MemoryStore | S3Store) -> None:
    store.put("k", b"one")
    store.put("k", b"")
    assert store.exists("k")
    assert store.get("k") == b""


def test_a_missing_key_is_named(store: MemoryStore | S3Store) -> None:
    assert not store.exists("runs/none")
    with pytest.raises(FileNotFoundError, match="runs/none"):
        store.get("runs/none")
    with pytest.raises(FileNotFoundError, match="runs/none"):
        store.view("runs/none")


def test_lists_by_any_prefix_in_order_and_deletes(store: MemoryStore | S3Store) -> None:
    store.put_many(dict.fromkeys(("r/ab/2", "r/ab/1", "r/a", "r/b", "q/ab"), b"1"))
    assert store.list("r/a") == ["r/a", "r/ab/1", "r/ab/2"]
    assert store.list("r/ab/") == ["r/ab/1", "r/ab/2"]
    assert store.list("") == ["q/ab", "r/a", "r/ab/1", "r/ab/2", "r/b"]
    store.delete(["r/ab/1", "r/ab/2", "r/never-there"])
    store.delete([])
    assert store.list("r/") == ["r/a", "r/b"]


def test_more_than_one_page_of_keys(store: MemoryStore | S3Store) -> None:
    store.put_many({f"p/{index:04}": b"x" for index in range(1100)})
    assert len(store.list("p/")) == 1100
    store.delete(store.list("p/"))
    assert store.list("p/") == []


def test_many_come_back_in_the_order_asked(store: MemoryStore | S3Store) -> None:
    store.put_many({str(index): str(index).encode() for index in range(40)})
    wanted = [str(index) for index in reversed(range(40))]
    assert list(store.view_many(wanted)) == [name.encode() for name in wanted]


def test_put_once_leaves_what_is_there(store: MemoryStore | S3Store) -> None:
    key = Keys.model_spec(b"content")
    assert put_once(store, key, b"content") == key
    assert put_once(store, key, b"never written, the name promises the content") == key
    assert store.get(key) == b"content"


def test_s3_takes_its_endpoint_from_the_environment(aws_environment: pytest.MonkeyPatch, s3_endpoint: str) -> None:
    aws_environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    aws_environment.setenv("AWS_ENDPOINT_URL_S3", s3_endpoint)
    store = S3Store(BUCKET, prefix="env")
    assert store.endpoint.url == s3_endpoint
    store.put("k", b"v")
    assert store.get("k") == b"v"


def test_large_objects_go_up_in_parts(aws_environment: pytest.MonkeyPatch, s3_endpoint: str) -> None:
    store = S3Store(BUCKET, prefix="large", endpoint_url=s3_endpoint)
    content = bytes(65 << 20)
    store.put("k", content)
    assert digest(store.get("k")) == digest(content)
    store.delete(["k"])


def test_a_missing_bucket_is_a_preflight_error(aws_environment: pytest.MonkeyPatch, s3_endpoint: str) -> None:
    with pytest.raises(PreflightError, match="no bucket never-made"):
        S3Store("never-made", endpoint_url=s3_endpoint).put("k", b"v")


@pytest.mark.usefixtures("aws_environment")
def test_a_store_that_does_not_answer_can_be_resumed() -> None:
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        store = S3Store(BUCKET, endpoint_url=f"http://{address}", patience_s=0.2)
        with pytest.raises(StoreUnavailable, match=re.escape(address)):
            store.put("k", b"v")


def test_no_credentials_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with pytest.raises(PreflightError, match="no AWS credentials"):
        S3Store(BUCKET)


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "x" * 129, "sp ace", "run\n"])
def test_run_names_are_safe_in_keys(name: str) -> None:
    with pytest.raises(ConfigError, match="run name"):
        Keys(name)


def test_keys_of_a_run_lie_under_its_prefix_and_differ() -> None:
    keys = Keys("digits-1")
    made = [
        keys.cancel,
        keys.weights(0, 1, 2, b"w"),
        keys.weights(1, 1, 2, b"w"),
        keys.weights(0, 2, 1, b"w"),
        keys.checkpoint("3"),
        keys.spill(0, 1),
        keys.reduced(0, 1, 2, 1),
    ]
    assert len(set(made)) == len(made)
    assert all(key.startswith("runs/digits-1/") for key in made)


def test_what_a_life_wrote_is_known_by_its_key() -> None:
    """As the worker makes the names, too."""
    keys = Keys("3-digits")
    for epoch in (0, 12):
        spilled, mailed = keys.spill(7, 5), keys.mail(epoch, 7)
        made = [keys.weights(epoch, 1, 2, b"w"), keys.reduced(epoch, 4, 0, 1)]
        for prefix in (spilled, mailed):
            request = Request("gradient", "3-digits", epoch, 7, 5, "b", reply=ReplyMode(prefix=prefix))
            made += [result_key(request, 1), early_key(request, 0), reply_key(request)]
        assert [keys.life_of(key) for key in made] == [epoch] * len(made)


def test_spilled_results_spread_over_prefixes() -> None:
    prefixes = {Keys("r").spill(round, worker) for round in range(10) for worker in range(256)}
    assert len(prefixes) == 256
    assert all(prefix.startswith(Keys("r").results) for prefix in prefixes)
