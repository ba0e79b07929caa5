"""Signed URLs in S3's older manner (signature version 2), which stock boto3 still makes where no region asks for more.

Pure. Used by `s3_door.py`; all other signatures are checked by `sigv4.py`.
Source: "Signing and authenticating REST requests", AWS documentation.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from botocore.auth import HmacV1Auth
from botocore.credentials import Credentials

from gradmux.infra.local.canonical import parameters
from gradmux.infra.local.secret import TOKEN, Secret
from gradmux.infra.local.sigv4 import Fault, Refusal

NO_ONE = Credentials("", "")
OWN = frozenset({"Signature", "AWSAccessKeyId", "Expires"})


def is_old_url(target: str) -> bool:
    """Whether a target carries such a signature."""
    return parameters(target).keys() >= OWN


def check_old_url(secret: Secret, method: str, target: str, headers: Mapping[str, str], now_s: float) -> Refusal | None:
    """None when the URL is signed with our key and still good. Header names in lower case."""
    asked = parameters(target)
    told = Refusal(Fault.SIGNATURE, access_key=asked["AWSAccessKeyId"], signature=asked["Signature"], now_s=now_s)
    expires, token = asked["Expires"], asked.get("x-amz-security-token")
    if not hmac.compare_digest(told.access_key.encode(), secret.access_key.encode()):
        return Refusal(Fault.UNKNOWN_KEY, access_key=told.access_key, now_s=now_s)
    if token not in (None, TOKEN):
        return Refusal(Fault.TOKEN, access_key=told.access_key, now_s=now_s)
    expected = _signature(secret, method, target, {**headers, **_signed_parameters(asked), "date": expires})
    if not hmac.compare_digest(expected.encode(), told.signature.encode()):
        return told
    if not expires.isdigit() or now_s > int(expires[:12]):
        return Refusal(Fault.EXPIRED, access_key=told.access_key, now_s=now_s)
    return None


def _signed_parameters(asked: Mapping[str, str]) -> dict[str, str]:
    """What a URL carries in place of headers."""
    names = ("content-md5", "content-type")
    return {name: value for name, value in asked.items() if name.startswith("x-amz-") or name in names}


def _signature(secret: Secret, method: str, target: str, headers: Mapping[str, str]) -> str:
    """Base64 of HMAC-SHA1 over method, a few headers and the resource."""
    plain = [headers.get(name, "").strip() for name in ("content-md5", "content-type", "date")]
    own = [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-amz-")]
    resource = HmacV1Auth(NO_ONE).canonical_resource(urlsplit(f"http://localhost{target}"))
    text = "\n".join([method, *plain, *own, resource])
    return base64.b64encode(hmac.digest(secret.secret_key.encode(), text.encode("latin-1", "replace"), "sha1")).decode()
