"""Keys of S3 as people name them: those that can be read are, an odd one is named and hides no others."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from uuid import uuid4

import boto3
import numpy as np
import pytest

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Bucket
from gradmux.orchestrator.store import S3Store
from gradmux.orchestrator.training.data import load_dataset
from gradmux.orchestrator.training.packing import INDEX, Prefix
from tests.orchestrator.conftest import BUCKET

ROWS = 4
NAMES = (
    "part 1",
    "ünï é",
    "日本",
    "a%20b",
    "a+b&c=d",
    "a#b?c",
    "a~b[1]",
    "a*b",
    "x%2Fy",
    ".hidden",
    "semi;colon",
    "quo'te\"s",
    "back\\slash",
    "per%cent",
    "e\u0301",
    "😀",
    "a..b",
    "-",
    "x" * 200,
)


@pytest.fixture
def folder(s3_endpoint: str, aws_environment: pytest.MonkeyPatch) -> str:
    """Empty, and one's own."""
    aws_environment.setenv("AWS_ENDPOINT_URL_S3", s3_endpoint)
    return uuid4().hex


def npz() -> bytes:
    body = io.BytesIO()
    np.savez(body, x=np.ones((ROWS, 3), "f4"), y=np.arange(ROWS))
    return body.getvalue()


def put(*keys: str) -> None:
    client = boto3.client("s3")
    for key in keys:
        client.put_object(Bucket=BUCKET, Key=key, Body=npz() if key.endswith(".npz") else b"other")


def opened(bucket: str) -> Bucket:
    return S3Store(bucket)


@pytest.mark.parametrize("name", NAMES)
def test_a_key_of_odd_characters_is_read_alone_and_in_its_folder(folder: str, name: str) -> None:
    put(f"{folder}/{name}/{name}.npz")
    assert load_dataset(f"s3://{BUCKET}/{folder}/{name}/{name}.npz", opened).rows == ROWS
    assert load_dataset(f"s3://{BUCKET}/{folder}/{name}", opened).rows == ROWS
    assert load_dataset(f"s3://{BUCKET}/{folder}/{name}/", opened).rows == ROWS


@pytest.mark.parametrize(
    ("others", "named"),
    [
        (["{}//junk.npz"], True),
        (["{}/./b.npz"], True),
        (["{}/../b.npz"], True),
        (["{}/..", "{}/."], True),
        (["{}//", "{}//deep//er.npz"], True),
        (["{}/"], False),
        (["{}/sub/b.npz", "{}/_SUCCESS", "{}/b.crc"], False),
        (["{}/...", "{}/..a", "{}/a."], False),
    ],
    ids=str,
)
def test_odd_keys_hide_no_others(
    folder: str, others: Sequence[str], named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    put(f"{folder}/a.npz", *(other.format(folder) for other in others))
    with caplog.at_level(logging.WARNING):
        assert load_dataset(f"s3://{BUCKET}/{folder}", opened).rows == ROWS
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("gradmux")]
    assert bool(ours) == named
    assert all("rename it" in message and "\n" not in message for message in ours)


@pytest.mark.parametrize("source", ["{}//a.npz", "{}/./a.npz", "{}/../a.npz", "{}//", "/{}", "."])
def test_an_odd_key_that_is_asked_for_is_refused_in_one_line(folder: str, source: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read|no such|no \.npz") as refusal:
        load_dataset(f"s3://{BUCKET}/{source.format(folder)}", opened)
    assert "\n" not in str(refusal.value)


def test_a_single_file_needs_no_listing(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(f"{folder}/a.npz")

    def refused(*_: object) -> None:
        raise AssertionError("listed")

    monkeypatch.setattr(S3Store, "children", refused)
    monkeypatch.setattr(S3Store, "list", refused)
    assert load_dataset(f"s3://{BUCKET}/{folder}/a.npz", opened).rows == ROWS


@pytest.mark.parametrize("name", NAMES[:8])
def test_sets_are_packed_under_odd_prefixes(folder: str, name: str) -> None:
    dataset = load_dataset((np.ones((ROWS, 3)), np.arange(ROWS)))
    store = S3Store(BUCKET)
    dataset.packed.put(Prefix(store, f"{folder}/{name}/"))
    put(f"{folder}/{name}//{INDEX}")
    assert load_dataset(f"s3://{BUCKET}/{folder}/{name}", opened).digest == dataset.digest
