"""Signatures equal botocore's: over a table of requests, and for what a stock boto3 client really sends."""

from __future__ import annotations

import datetime
from typing import Any

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials, ReadOnlyCredentials

from gradmux.orchestrator.fleets.calling import Function
from gradmux.orchestrator.fleets.signing import Signer, Target

PLAIN = ReadOnlyCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None)
SESSION = ReadOnlyCredentials("ASIAEXAMPLE", "se/cr+et", "FwoGZXIvYXdzEBYaD//token+with/odd==chars")
MORNING = datetime.datetime(2026, 2, 28, 23, 59, 59, tzinfo=datetime.UTC)
LEAP = datetime.datetime(2028, 2, 29, 0, 0, 0, tzinfo=datetime.UTC)

FUNCTIONS = [
    Function("worker"),
    Function("worker", "live"),
    Function("worker", "$LATEST"),
    Function("my_odd-Function.name~1"),
    Function("worker:v1"),
    Function("123456789012:function:worker"),
    Function("arn:aws:lambda:eu-west-3:123456789012:function:worker:PROD"),
    Function("arn:aws-cn:lambda:cn-north-1:123456789012:function:worker", "7"),
]
ENDPOINTS = [
    ("https://lambda.us-east-1.amazonaws.com", "us-east-1"),
    ("https://lambda.cn-north-1.amazonaws.com.cn", "cn-north-1"),
    ("http://127.0.0.1:4567", "eu-west-1"),
    ("http://localhost:80", "us-west-2"),
    ("https://vpce-1.lambda.us-gov-west-1.vpce.amazonaws.com:8443", "us-gov-west-1"),
]
HEADERS = {"X-Amz-Invocation-Type": "RequestResponse", "X-Amz-Log-Type": "Tail"}
ODD_HEADERS = {"X-Amz-Client-Context": "  eyJ9   two  spaces ", "x-amz-zz": "", "Content-Type": "application/json"}


class SigV4At(SigV4Auth):
    """botocore's signer, at an instant that it is told. Its `add_auth` does this at the present one."""

    def sign_at(self, request: AWSRequest, when: datetime.datetime) -> str:
        request.context["timestamp"] = when.strftime("%Y%m%dT%H%M%SZ")
        self._modify_request_before_signing(request)  # type: ignore[attr-defined]
        to_sign = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(to_sign, request))  # type: ignore[attr-defined]
        return str(request.headers["Authorization"])


def botocores(
    url: str,
    headers: dict[str, str],
    body: bytes,
    credentials: ReadOnlyCredentials,
    region: str,
    when: datetime.datetime,
) -> str:
    """botocore's Authorization header for the same request at the same instant."""
    request = AWSRequest("POST", url, headers=headers, data=body)
    keys = Credentials(credentials.access_key or "", credentials.secret_key or "", credentials.token)
    return SigV4At(keys, "lambda", region).sign_at(request, when)


@pytest.mark.parametrize("when", [MORNING, LEAP])
@pytest.mark.parametrize("credentials", [PLAIN, SESSION])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.name}@{f.qualifier}")
@pytest.mark.parametrize(("endpoint", "region"), ENDPOINTS)
def test_equal_to_botocore(
    endpoint: str, region: str, function: Function, credentials: ReadOnlyCredentials, when: datetime.datetime
) -> None:
    url, signer = f"{endpoint}{function.path()}", Signer("lambda", region)
    for headers, body in ((HEADERS, b'{"a": 1}'), (ODD_HEADERS, b""), ({}, bytes(range(256)))):
        signed = signer.sign(Target.of(url, headers), body, credentials, when.timestamp())
        assert signed["Authorization"] == botocores(url, headers, body, credentials, region, when)
        assert headers.items() <= signed.items()
        assert signed.get("X-Amz-Security-Token") == credentials.token


def test_the_kept_key_follows_day_and_secret() -> None:
    url, signer = f"{ENDPOINTS[0][0]}{FUNCTIONS[0].path()}", Signer("lambda", "us-east-1")
    for credentials, when in ((PLAIN, MORNING), (PLAIN, LEAP), (SESSION, LEAP), (SESSION, MORNING), (PLAIN, MORNING)):
        signed = signer.sign(Target.of(url, HEADERS), b"{}", credentials, when.timestamp())
        assert signed["Authorization"] == botocores(url, HEADERS, b"{}", credentials, "us-east-1", when)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.name}@{f.qualifier}")
@pytest.mark.parametrize("token", [None, "session/token+="])
def test_what_a_stock_client_sends_is_signed_the_same(function: Function, token: str | None) -> None:
    """URL, host and signature of a request that boto3 was about to send, signed again over the headers it signed."""
    sent: list[Any] = []

    class Stop(Exception):
        pass

    def capture(request: Any, **_: Any) -> None:
        sent.append(request)
        raise Stop

    client = boto3.client(
        "lambda", region_name="eu-west-3", aws_access_key_id="AK", aws_secret_access_key="SK", aws_session_token=token,
        config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip
    client.meta.events.register("before-send.lambda.Invoke", capture)
    qualifier = {"Qualifier": function.qualifier} if function.qualifier else {}
    with pytest.raises(Stop):
        client.invoke(FunctionName=function.name, Payload=b'{"x": [1, 2]}', LogType="Tail", **qualifier)
    (request,) = sent
    assert request.url.endswith(function.path())
    theirs = {name: _text(value) for name, value in request.headers.items()}
    names = theirs["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    given = {n: v for n, v in theirs.items() if n.lower() in names and n.lower() not in ("host", "x-amz-date")}
    when = datetime.datetime.strptime(theirs["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    given.pop("X-Amz-Security-Token", None)
    signed = Signer("lambda", "eu-west-3").sign(
        Target.of(request.url, given), b'{"x": [1, 2]}', ReadOnlyCredentials("AK", "SK", token), when.timestamp()
    )
    assert signed["Authorization"] == theirs["Authorization"]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
