"""How S3, and what else moto plays, says that a request is not let in: AWS's names, texts and shapes.

Pure. Used by `s3_door.py`; Lambda's own words are in `answers.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from xml.sax.saxutils import escape

from gradmux.infra.local.s3_objects import ObjectAnswer
from gradmux.infra.local.sigv4 import SKEW_S, Fault, Refusal

XML, XML_HEAD = "application/xml", '<?xml version="1.0" encoding="UTF-8"?>\n'
S3_WORDS: Mapping[Fault, tuple[int, str, str]] = {
    Fault.MISSING: (403, "AccessDenied", "Access Denied"),
    Fault.MALFORMED: (403, "AccessDenied", "Access Denied"),
    Fault.UNKNOWN_KEY: (
        403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."
    ),
    Fault.TOKEN: (403, "InvalidToken", "The provided token is malformed or otherwise invalid."),
    Fault.SCOPE: (400, "AuthorizationHeaderMalformed", "The authorization header is malformed"),
    Fault.SIGNATURE: (
        403,
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. Check your key and signing "
        "method.",
    ),
    Fault.UNSIGNED_HEADERS: (403, "AccessDenied", "There were headers present in the request which were not signed"),
    Fault.SKEWED: (
        403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large."
    ),
    Fault.EXPIRED: (403, "AccessDenied", "Request has expired"),
}  # fmt: skip
OTHER_WORDS: Mapping[Fault, tuple[str, str, str]] = {
    Fault.MISSING: (
        "MissingAuthenticationToken", "MissingAuthenticationTokenException", "Request is missing Authentication Token"
    ),
    Fault.MALFORMED: ("IncompleteSignature", "IncompleteSignatureException", "The request signature is incomplete"),
    Fault.UNKNOWN_KEY: (
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
    ),
    Fault.TOKEN: (
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
    ),
}  # fmt: skip
"""fault -> (name in query protocols, name in JSON protocols, text); all others are `MISMATCH`"""
MISMATCH = (
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details.",
)


def s3_refusal(refusal: Refusal) -> ObjectAnswer:
    """S3's error document."""
    status, code, message = S3_WORDS[refusal.fault]
    return s3_error(status, code, f"{message}; {refusal.detail}" if status == 400 else message, _more(refusal))


def s3_error(status: int, code: str, message: str, more: Mapping[str, str] | None = None) -> ObjectAnswer:
    fields = {"Code": code, "Message": message, **(more or {}), "RequestId": "emulator", "HostId": "emulator"}
    inner = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
    return ObjectAnswer(status, {"Content-Type": XML}, f"{XML_HEAD}<Error>{inner}</Error>".encode())


def other_refusal(refusal: Refusal, content_type: str) -> ObjectAnswer:
    """That of any other service, in its protocol: JSON or XML."""
    query, name, message = OTHER_WORDS.get(refusal.fault, MISMATCH)
    if "json" in content_type:
        body = json.dumps({"__type": name, "message": message}).encode()
        return ObjectAnswer(403, {"Content-Type": content_type, "x-amzn-ErrorType": name}, body)
    error = f"<Error><Type>Sender</Type><Code>{query}</Code><Message>{escape(message)}</Message></Error>"
    whole = f"{XML_HEAD}<ErrorResponse>{error}<RequestId>emulator</RequestId></ErrorResponse>"
    return ObjectAnswer(403, {"Content-Type": "text/xml"}, whole.encode())


def _more(refusal: Refusal) -> dict[str, str]:
    """What S3 adds to some of its errors."""
    key = {"AWSAccessKeyId": refusal.access_key} if refusal.access_key else {}
    if refusal.fault is Fault.UNKNOWN_KEY:
        return key
    if refusal.fault is Fault.SIGNATURE:
        return {**key, "SignatureProvided": refusal.signature}
    if refusal.fault is Fault.SKEWED:
        server = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(refusal.now_s))
        skew_ms = f"{SKEW_S['s3'] * 1000:.0f}"
        return {"RequestTime": refusal.stamp, "ServerTime": server, "MaxAllowedSkewMilliseconds": skew_ms}
    return {"HeadersNotSigned": refusal.detail} if refusal.fault is Fault.UNSIGNED_HEADERS else {}
