"""Requests to an emulator, signed by botocore's own signer or not at all, and what came back of them."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from gradmux.infra.local.secret import Secret

INVOKE = "/2015-03-31/functions/gradmux-worker/invocations"


@dataclass(frozen=True)
class Heard:
    """An answer."""

    status: int
    error: str | None
    """x-amzn-ErrorType"""
    body: bytes
    headers: Mapping[str, str]


def signed(
    secret: Secret, method: str, url: str, body: bytes = b"", service: str = "lambda", **headers: str
) -> dict[str, str]:
    """The headers of a request as botocore signs it; `headers` with underscores for hyphens."""
    request = AWSRequest(
        method, url, data=body, headers={name.replace("_", "-"): each for name, each in headers.items()}
    )
    request.context["payload_signing_enabled"] = True
    auth = S3SigV4Auth if service == "s3" else SigV4Auth
    auth(Credentials(secret.access_key, secret.secret_key), service, "us-east-1").add_auth(request)
    return dict(request.headers.items())


def ask(method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Heard:
    """Sends exactly these headers (and Host, and a length)."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        given = {**(headers or {})}
        connection.putrequest(method, target, skip_host="Host" in given, skip_accept_encoding=True)
        for name, value in {"Content-Length": str(len(body)), **given}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        return Heard(response.status, response.headers.get("x-amzn-ErrorType"), response.read(), dict(response.headers))
    finally:
        connection.close()
