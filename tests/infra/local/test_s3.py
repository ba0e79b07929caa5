"""S3 for stock clients, over connections that stay open; and no way from the emulator to AWS."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from gradmux.infra.local import Emulator
from gradmux.infra.local.processes import child_environment
from tests.infra.local.conftest import Outcome, client_of

BUCKET = "bucket-of-the-tests"


@pytest.fixture(scope="module")
def s3(shared_emulator: Emulator) -> Any:
    client = client_of(shared_emulator, "s3")
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.mark.parametrize("size_bytes", [0, 1, 100_000, 3_000_000])
def test_objects_come_back(s3: Any, size_bytes: int) -> None:
    body = os.urandom(size_bytes)
    put = s3.put_object(Bucket=BUCKET, Key=f"of/{size_bytes}", Body=body)
    got = s3.get_object(Bucket=BUCKET, Key=f"of/{size_bytes}")
    assert got["Body"].read() == body
    assert got["ContentLength"] == size_bytes
    assert got["ETag"] == put["ETag"]
    assert s3.head_object(Bucket=BUCKET, Key=f"of/{size_bytes}")["ContentLength"] == size_bytes


@pytest.mark.parametrize(("asked", "expected"), [("bytes=2-4", b"234"), ("bytes=7-", b"789"), ("bytes=-2", b"89")])
def test_ranges(s3: Any, asked: str, expected: bytes) -> None:
    s3.put_object(Bucket=BUCKET, Key="digits", Body=b"0123456789")
    got = s3.get_object(Bucket=BUCKET, Key="digits", Range=asked)
    assert got["Body"].read() == expected
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    start = b"0123456789".index(expected)
    assert got["ContentRange"] == f"bytes {start}-{start + len(expected) - 1}/10"


def test_what_is_not_there(s3: Any) -> None:
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket=BUCKET, Key="nothing")
    with pytest.raises(s3.exceptions.NoSuchBucket):
        s3.get_object(Bucket="no-such-bucket", Key="nothing")
    s3.put_object(Bucket=BUCKET, Key="short", Body=b"x")
    with pytest.raises(ClientError, match="InvalidRange"):
        s3.get_object(Bucket=BUCKET, Key="short", Range="bytes=5-9")


def test_conditional_writes(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="once", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket=BUCKET, Key="once", Body=b"second", IfNoneMatch="*")
    assert s3.get_object(Bucket=BUCKET, Key="once")["Body"].read() == b"first"


def test_metadata_listing_and_deletion(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="list/a b+c", Body=b"x", Metadata={"run": "digits-1"}, ContentType="text/plain")
    got = s3.get_object(Bucket=BUCKET, Key="list/a b+c")
    assert (got["Metadata"], got["ContentType"]) == ({"run": "digits-1"}, "text/plain")
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET, Prefix="list/")["Contents"]] == ["list/a b+c"]
    s3.delete_object(Bucket=BUCKET, Key="list/a b+c")
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="list/")["KeyCount"] == 0


def test_an_object_replaced_is_the_new_one(s3: Any) -> None:
    for body in (b"old", b"newer"):
        s3.put_object(Bucket=BUCKET, Key="replaced", Body=body)
    got = s3.get_object(Bucket=BUCKET, Key="replaced")
    assert got["Body"].read() == b"newer"
    assert got["ETag"] == f'"{hashlib.md5(b"newer").hexdigest()}"'
    s3.delete_object(Bucket=BUCKET, Key="replaced")
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket=BUCKET, Key="replaced")


def test_a_write_into_no_bucket_is_refused(s3: Any) -> None:
    with pytest.raises(s3.exceptions.NoSuchBucket):
        s3.put_object(Bucket="no-such-bucket", Key="k", Body=b"x" * 100_000)
    assert "no-such-bucket" not in [each["Name"] for each in s3.list_buckets()["Buckets"]]


def test_of_many_writers_with_the_same_condition_one_wins(s3: Any) -> None:
    def write(number: int) -> bool:
        try:
            s3.put_object(Bucket=BUCKET, Key="race", Body=str(number).encode(), IfNoneMatch="*")
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(8) as writers:
        won = list(writers.map(write, range(32)))
    assert won.count(True) == 1
    assert s3.get_object(Bucket=BUCKET, Key="race")["Body"].read() == str(won.index(True)).encode()


def test_versions_are_kept_where_they_are_asked_for(s3: Any) -> None:
    s3.create_bucket(Bucket="bucket-with-versions")
    s3.put_bucket_versioning(Bucket="bucket-with-versions", VersioningConfiguration={"Status": "Enabled"})
    first = s3.put_object(Bucket="bucket-with-versions", Key="k", Body=b"first")["VersionId"]
    s3.put_object(Bucket="bucket-with-versions", Key="k", Body=b"second")
    assert s3.get_object(Bucket="bucket-with-versions", Key="k")["Body"].read() == b"second"
    assert s3.get_object(Bucket="bucket-with-versions", Key="k", VersionId=first)["Body"].read() == b"first"


def test_a_streamed_upload(s3: Any, shared_emulator: Emulator) -> None:
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="parts")["UploadId"]
    parts = []
    for number, body in enumerate([b"a" * 5 * 2**20, b"b"], start=1):
        part = s3.upload_part(Bucket=BUCKET, Key="parts", UploadId=upload, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    s3.complete_multipart_upload(Bucket=BUCKET, Key="parts", UploadId=upload, MultipartUpload={"Parts": parts})
    assert s3.head_object(Bucket=BUCKET, Key="parts")["ContentLength"] == 5 * 2**20 + 1


def test_the_rest_of_the_control_plane_is_moto(shared_emulator: Emulator) -> None:
    assert client_of(shared_emulator, "sts").get_caller_identity()["Account"] == "123456789012"


def test_workers_can_only_reach_the_emulator(
    invoke: Callable[..., Outcome], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = invoke({"do": "describe"}).payload["environment"]
    assert seen["AWS_ENDPOINT_URL"] == seen["AWS_ENDPOINT_URL_S3"] == emulator.s3_endpoint
    assert seen["AWS_ENDPOINT_URL_LAMBDA"] == emulator.lambda_endpoint
    assert seen["AWS_EC2_METADATA_DISABLED"] == "true"
    assert seen["AWS_ACCESS_KEY_ID"] == emulator.secret.access_key
    assert "AWS_PROFILE" not in seen


def test_no_setting_of_the_user_gets_into_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_ROLE_ARN", "https_proxy"):
        monkeypatch.setenv(name, "the user's")
    assert "the user's" not in child_environment({}).values()


def test_the_environment_is_enough_for_a_stock_session(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    session = boto3.Session()
    assert session.client("lambda").meta.endpoint_url == emulator.lambda_endpoint
    assert session.client("s3").meta.endpoint_url == emulator.s3_endpoint
    assert session.client("dynamodb").meta.endpoint_url == emulator.s3_endpoint
    assert session.client("sts").get_caller_identity()["Account"] == "123456789012"
