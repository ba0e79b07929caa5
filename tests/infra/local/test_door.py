"""Nobody gets in without the key, or from elsewhere; and the errors are AWS's."""

from __future__ import annotations

import datetime
import json
import os
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import botocore.auth
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

from gradmux.infra.local import Emulator, EmulatorError
from gradmux.infra.local.client import AdminClient
from gradmux.infra.local.secret import TOKEN, Secret
from tests.infra.local.conftest import client_of
from tests.infra.local.door import INVOKE, ask, signed

BUCKET = "bucket-behind-the-door"
STRANGER = Secret("LOCAL0STRANGER000000", "not-the-secret")
Operation = Callable[[Any], Any]


@pytest.fixture(scope="module")
def s3(shared_emulator: Emulator) -> Any:
    client = client_of(shared_emulator, "s3")
    client.create_bucket(Bucket=BUCKET)
    client.put_object(Bucket=BUCKET, Key="there", Body=b"content")
    return client


def client_with(
    emulator: Emulator, secret: Secret, service: str, token: str | None = None, region: str = "us-east-1"
) -> Any:
    return boto3.client(
        service,
        endpoint_url=emulator.lambda_endpoint if service == "lambda" else emulator.s3_endpoint,
        region_name=region,
        aws_access_key_id=secret.access_key,
        aws_secret_access_key=secret.secret_key,
        aws_session_token=token,
        config=Config(retries={"total_max_attempts": 1}),
    )


# --- stock clients with a wrong key --------------------------------------------------------------------------------

OPERATIONS: dict[str, Operation] = {
    "lambda": lambda client: client.invoke(FunctionName="gradmux-worker", Payload=b"{}"),
    "s3": lambda client: client.get_object(Bucket=BUCKET, Key="there"),
    "sts": lambda client: client.get_caller_identity(),
    "dynamodb": lambda client: client.list_tables(),
    "cloudformation": lambda client: client.list_stacks(),
}


@pytest.mark.parametrize(
    ("service", "unknown", "mismatch"),
    [
        ("lambda", "UnrecognizedClientException", "InvalidSignatureException"),
        ("s3", "InvalidAccessKeyId", "SignatureDoesNotMatch"),
        ("sts", "InvalidClientTokenId", "SignatureDoesNotMatch"),
        ("dynamodb", "UnrecognizedClientException", "InvalidSignatureException"),
        ("cloudformation", "InvalidClientTokenId", "SignatureDoesNotMatch"),
    ],
)
@pytest.mark.usefixtures("s3")
def test_a_wrong_key_gets_awss_error(emulator: Emulator, service: str, unknown: str, mismatch: str) -> None:
    before = emulator.statistics()["invocations"]
    half_right = Secret(emulator.secret.access_key, STRANGER.secret_key)
    for secret, code in ((STRANGER, unknown), (half_right, mismatch)):
        with pytest.raises(ClientError) as refused:
            OPERATIONS[service](client_with(emulator, secret, service))
        assert refused.value.response["Error"]["Code"] == code
        assert refused.value.response["Error"]["Message"]
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert emulator.statistics()["invocations"] == before


def test_a_token_of_another_session_is_refused_and_our_own_may_be_left_out(emulator: Emulator, s3: Any) -> None:
    for service, code in (("lambda", "UnrecognizedClientException"), ("s3", "InvalidToken")):
        OPERATIONS[service](client_with(emulator, emulator.secret, service))
        OPERATIONS[service](client_with(emulator, emulator.secret, service, token=TOKEN))
        with pytest.raises(ClientError, match=code):
            OPERATIONS[service](client_with(emulator, emulator.secret, service, token="of the user's shell"))


def test_a_key_for_another_region_is_refused(emulator: Emulator) -> None:
    with pytest.raises(ClientError, match="InvalidSignatureException"):
        OPERATIONS["lambda"](client_with(emulator, emulator.secret, "lambda", region="eu-west-1"))
    with pytest.raises(ClientError, match=r"AuthorizationHeaderMalformed.*expecting 'us-east-1'"):
        client_with(emulator, emulator.secret, "s3", region="eu-west-1").list_objects_v2(Bucket=BUCKET)


# --- without a signature, or with a broken one ---------------------------------------------------------------------


def test_nothing_is_answered_without_a_signature(emulator: Emulator, s3: Any) -> None:
    ours, theirs = emulator.lambda_endpoint, emulator.s3_endpoint
    for method, path in (
        ("POST", INVOKE), ("GET", "/2015-03-31/functions/gradmux-worker"), ("GET", "/2016-08-19/account-settings/"),
        ("GET", "/_emulator/statistics"), ("GET", "/_emulator/journal"), ("POST", "/_emulator/faults"), ("GET", "/"),
    ):  # fmt: skip
        heard = ask(method, ours + path, b"{}")
        assert (heard.status, heard.error) == (403, "MissingAuthenticationTokenException"), path
        assert json.loads(heard.body) == {"message": "Missing Authentication Token"}
    for method, path in (
        ("GET", f"/{BUCKET}/there"), ("PUT", f"/{BUCKET}/mine"), ("POST", f"/{BUCKET}"), ("DELETE", f"/{BUCKET}/there"),
        ("GET", "/"), ("GET", "/_emulator/s3"), ("POST", "/_emulator/s3"), ("POST", "/moto-api/reset"),
        ("GET", "/moto-api/data.json"), ("OPTIONS", f"/{BUCKET}/there"), ("GET", "/_aws/sqs/messages"),
    ):  # fmt: skip
        heard = ask(method, theirs + path, b"{}")
        assert heard.status == 403, path
        assert b"<Code>AccessDenied</Code>" in heard.body, path
    assert s3.get_object(Bucket=BUCKET, Key="there")["Body"].read() == b"content"


@pytest.mark.parametrize(
    "authorization",
    [
        "", "Bearer x", "AWS LOCAL:sig", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Signature=", "Signature=" + "0" * 64,
        "AWS4-HMAC-SHA256 Credential=a/b/c, SignedHeaders=host, Signature=0", "AWS4-HMAC-SHA256 Credential=, "
        "SignedHeaders=, Signature=é",
    ],
)  # fmt: skip
def test_what_is_no_signature_is_refused(emulator: Emulator, authorization: str) -> None:
    heard = ask(
        "POST", emulator.lambda_endpoint + INVOKE, b"{}", {"Authorization": authorization.encode().decode("latin-1")}
    )
    assert (heard.status, heard.error) == (403, "IncompleteSignatureException")
    content = {"Authorization": authorization.encode().decode("latin-1"), "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    assert ask("GET", f"{emulator.s3_endpoint}/{BUCKET}/there", headers=content).status == 403


@pytest.mark.parametrize("change", ["body", "path", "query", "method", "header", "signature", "added"])
def test_a_signature_is_good_for_one_request_alone(emulator: Emulator, change: str) -> None:
    url, body, method = emulator.lambda_endpoint + INVOKE, b'{"do": "nothing"}', "POST"
    headers = signed(emulator.secret, method, url, body, X_Amz_Log_Type="Tail")
    assert ask(method, url, body, headers).status == 200
    if change == "body":
        body = b'{"do": "describe"}'
    elif change == "path":
        url = url.replace("gradmux-worker", "gradmux-worker:live")
    elif change == "query":
        url += "?Qualifier=live"
    elif change == "method":
        method = "PUT"
    elif change == "header":
        headers["X-Amz-Log-Type"] = "None"
    elif change == "signature":
        flipped = "0" if headers["Authorization"][-1] != "0" else "1"
        headers["Authorization"] = headers["Authorization"][:-1] + flipped
    else:
        headers["X-Amz-Invocation-Type"] = "Event"
    heard = ask(method, url, body, headers)
    assert (heard.status, heard.error) == (403, "InvalidSignatureException")


def signed_at(ahead_s: float, secret: Secret, method: str, url: str, service: str) -> dict[str, str]:
    """As by a client whose clock is so much ahead."""

    def shown(remove_tzinfo: bool = True) -> datetime.datetime:
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=ahead_s)
        return now.replace(tzinfo=None) if remove_tzinfo else now

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", shown)
        return signed(secret, method, url, service=service)


@pytest.mark.parametrize(("ahead_s", "told"), [(-330, "Signature expired"), (330, "Signature not yet current")])
@pytest.mark.usefixtures("s3")
def test_a_skewed_clock_is_told(emulator: Emulator, ahead_s: int, told: str) -> None:
    """Lambda tolerates 5 minutes, S3 15; the Date of the answer tells the client the time."""
    invoke, there = emulator.lambda_endpoint + INVOKE, f"{emulator.s3_endpoint}/{BUCKET}/there"
    heard = ask("POST", invoke, headers=signed_at(ahead_s, emulator.secret, "POST", invoke, "lambda"))
    assert (heard.status, heard.error) == (403, "InvalidSignatureException")
    assert told in json.loads(heard.body)["message"]
    assert "Date" in heard.headers
    assert ask("GET", there, headers=signed_at(ahead_s, emulator.secret, "GET", there, "s3")).status == 200
    heard = ask("GET", there, headers=signed_at(3 * ahead_s, emulator.secret, "GET", there, "s3"))
    assert heard.status == 403
    assert b"<Code>RequestTimeTooSkewed</Code>" in heard.body
    assert b"<MaxAllowedSkewMilliseconds>900000</MaxAllowedSkewMilliseconds>" in heard.body


def test_a_body_that_is_not_what_was_signed_is_refused(emulator: Emulator, s3: Any) -> None:
    url = f"{emulator.s3_endpoint}/{BUCKET}/promised"
    headers = signed(emulator.secret, "PUT", url, b"promised", service="s3")
    heard = ask("PUT", url, b"otherwise", {**headers, "Content-Length": "9"})
    assert heard.status == 400
    assert b"<Code>XAmzContentSHA256Mismatch</Code>" in heard.body
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket=BUCKET, Key="promised")


def test_a_large_body_of_a_stranger_is_not_read(emulator: Emulator, s3: Any) -> None:
    heard = ask("PUT", f"{emulator.s3_endpoint}/{BUCKET}/large", b"x" * (1 << 19))
    assert heard.status == 403
    with pytest.raises(s3.exceptions.ClientError):
        client_with(emulator, STRANGER, "s3").put_object(Bucket=BUCKET, Key="large", Body=b"x" * (5 << 20))


# --- from elsewhere ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "example.com"}, {"Host": "rebound.example:80"}, {"Host": "127.0.0.1.example.com"}, {"Host": "[::2]"},
        {"Host": "localhost.evil:1"}, {"Host": ""}, {"Host": "127.0.0.1, example.com"}, {"Host": "user@127.0.0.1"},
        {"Origin": "http://example.com"}, {"Origin": "null"}, {"Origin": "https://127.0.0.1.example.com"},
        {"Origin": "file://"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://localhost@example.com"},
    ],
    ids=str,
)  # fmt: skip
def test_even_with_the_key_nothing_comes_from_elsewhere(emulator: Emulator, s3: Any, headers: dict[str, str]) -> None:
    for method, url, service in (
        ("POST", emulator.lambda_endpoint + INVOKE, "lambda"),
        ("GET", emulator.lambda_endpoint + "/_emulator/statistics", "lambda"),
        ("GET", f"{emulator.s3_endpoint}/{BUCKET}/there", "s3"),
        ("GET", emulator.s3_endpoint + "/_emulator/s3", "s3"),
    ):
        right = signed(emulator.secret, method, url, service=service)
        for sent in ({**right, **headers}, headers, signed(emulator.secret, method, url, service=service, **headers)):
            heard = ask(method, url, headers=sent)
            assert heard.status == 403
            assert heard.error == "AccessDeniedException" or b"<Code>AccessDenied</Code>" in heard.body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:8080", "[::1]:9", "[::1]"])
def test_this_machine_may_be_called_by_any_of_its_names(emulator: Emulator, host: str) -> None:
    url = emulator.lambda_endpoint + INVOKE
    headers = signed(
        emulator.secret, "POST", url, b"{}", Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-site"
    )
    assert ask("POST", url, b"{}", headers).status == 200


def test_a_host_that_was_not_signed_for_is_no_way_around(emulator: Emulator) -> None:
    url = emulator.lambda_endpoint + INVOKE
    headers = signed(emulator.secret, "POST", url, b"{}")
    headers["Authorization"] = headers["Authorization"].replace("host;", "")
    assert ask("POST", url, b"{}", headers).error == "InvalidSignatureException"


# --- what stock clients do -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, "s3", "s3v4"])
def test_signed_urls(emulator: Emulator, s3: Any, version: str | None) -> None:
    v = emulator.environment()
    client = boto3.client(
        "s3", endpoint_url=emulator.s3_endpoint, region_name="us-east-1", aws_access_key_id=v["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=v["AWS_SECRET_ACCESS_KEY"], config=Config(signature_version=version),
    )  # fmt: skip
    place = {"Bucket": BUCKET, "Key": "by url/é+~!'()*&=%2F"}
    url = client.generate_presigned_url("put_object", Params={**place, "ContentType": "text/x"})
    put = urllib.request.Request(url, b"by url", {"Content-Type": "text/x"}, method="PUT")
    assert urllib.request.urlopen(put).status == 200
    url = client.generate_presigned_url("get_object", Params={**place, "ResponseContentType": "text/y"})
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"by url"
    for wrong in (url.replace("by%20url", "there"), re.sub(r"Expires=(\d)", r"Expires=1\1", url), url + "&versionId=1"):
        assert ask("GET", wrong).status == 403, wrong
    assert ask("DELETE", url).status == 403
    expired = client.generate_presigned_url("get_object", Params=place, ExpiresIn=-5 if version != "s3v4" else 1)
    if version == "s3v4":
        expired = re.sub(r"X-Amz-Date=\d{4}", "X-Amz-Date=2001", expired)
    assert ask("GET", expired).status == 403
    stranger = client_with(emulator, STRANGER, "s3").generate_presigned_url("get_object", Params=place)
    heard = ask("GET", stranger)
    assert (heard.status, b"InvalidAccessKeyId" in heard.body) == (403, True)


def test_uploads_in_parts_and_lists(emulator: Emulator, s3: Any, tmp_path: Path) -> None:
    file, back = tmp_path / "large", tmp_path / "back"
    file.write_bytes(os.urandom(6 << 20))
    s3.upload_file(
        str(file), BUCKET, "in/parts", Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
    )
    s3.download_file(BUCKET, "in/parts", str(back))
    assert back.read_bytes() == file.read_bytes()
    found = s3.list_objects_v2(Bucket=BUCKET, Prefix="in/", Delimiter="/", StartAfter="in/a b+c&d=é")
    assert [each["Key"] for each in found["Contents"]] == ["in/parts"]
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "in/parts"}]})


@pytest.mark.parametrize("checksums", ["when_required", "when_supported"])
@pytest.mark.parametrize("signing", [True, False])
def test_bodies_signed_or_not_with_or_without_checksums(
    emulator: Emulator, s3: Any, checksums: Any, signing: bool
) -> None:
    v = emulator.environment()
    client = boto3.client(
        "s3", endpoint_url=emulator.s3_endpoint, region_name="us-east-1", aws_access_key_id=v["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=v["AWS_SECRET_ACCESS_KEY"],
        config=Config(request_checksum_calculation=checksums, s3={"payload_signing_enabled": signing}),
    )  # fmt: skip
    client.put_object(Bucket=BUCKET, Key="checked", Body=b"body" * 1000)
    assert client.get_object(Bucket=BUCKET, Key="checked")["Body"].read() == b"body" * 1000


# --- the admin paths -----------------------------------------------------------------------------------------------


def test_an_admin_with_another_key_is_told(emulator: Emulator) -> None:
    started = emulator.started
    with pytest.raises(EmulatorError, match="refuses this key"):
        AdminClient(started.lambda_port, started.s3_port, STRANGER).statistics()
    with pytest.raises(EmulatorError, match="refuses this key"):
        AdminClient(started.lambda_port, started.s3_port, STRANGER).set_faults(emulator.config.faults)


def test_a_body_too_large_changes_nothing_whosever_it_is(emulator: Emulator) -> None:
    for path in ("/_emulator/warm", "/_emulator/faults", INVOKE):
        heard = ask("POST", emulator.lambda_endpoint + path, b" " * (7 << 20))
        assert (heard.status, heard.error) == (413, "RequestTooLargeException")


def test_no_two_emulators_have_the_same_key_and_it_is_never_shown() -> None:
    secrets = [Secret.make() for _ in range(100)]
    assert len({each.secret_key for each in secrets}) == len({each.access_key for each in secrets}) == 100
    assert all(re.fullmatch(r"[A-Z0-9]{20}", each.access_key) and len(each.secret_key) == 40 for each in secrets)
    assert secrets[0].secret_key not in repr(secrets[0])


def test_the_key_is_on_no_command_line(emulator: Emulator) -> None:
    shown = b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path))
    for part in (emulator.secret.secret_key, emulator.secret.access_key):
        assert part.encode() not in shown


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True
