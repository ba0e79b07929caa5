"""Who is let in to S3 and to all that moto plays beside it: before a body is read, and once it is there.

moto itself looks at no signature. Knows no sockets. Used by `s3.py`; read next: `sigv4.py`, `s3_answers.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from gradmux.infra.local.s3_answers import other_refusal, s3_error, s3_refusal
from gradmux.infra.local.s3_objects import ObjectAnswer
from gradmux.infra.local.s3_payload import is_promise, keeps_promise
from gradmux.infra.local.s3_url import check_old_url, is_old_url
from gradmux.infra.local.secret import Secret
from gradmux.infra.local.sigv4 import UNSIGNED, Fault, Refusal, Signed, Verifier, claim_of
from gradmux.infra.local.strangers import stranger

UNSIGNED_BODY_BYTES = 16 << 20
"""of a request that is signed over its body's own hash, which must be read before it is known whose it is"""
MISMATCH = "The provided 'x-amz-content-sha256' header does not match what was computed."


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request whose head is in order."""

    payload: str = UNSIGNED
    """what was signed of the body"""
    signed: Signed | None = None
    """None: the signature is over all but the body"""
    whole: bool = False
    """the signature is over the hash of the body, and can only be checked with it"""


class S3Door:
    """Checks every request of the S3 process."""

    def __init__(self, secret: Secret, region: str) -> None:
        self._secret = secret
        self._verifier = Verifier(secret, region)

    def admit(self, method: str, target: str, headers: Mapping[str, str]) -> Admitted | ObjectAnswer:
        """Before the body: let in, or the answer. Header names in lower case."""
        if reason := stranger(headers):
            return s3_error(403, "AccessDenied", reason)
        if _service_of(headers) != "s3":
            if int(headers.get("content-length") or 0) > UNSIGNED_BODY_BYTES:
                return s3_error(413, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
            return Admitted(whole=True)
        if "authorization" not in headers and is_old_url(target):
            refusal = check_old_url(self._secret, method, target, headers, time.time())
            return Admitted() if refusal is None else s3_refusal(refusal)
        return self._admit_to_s3(method, target, headers)

    def _admit_to_s3(self, method: str, target: str, headers: Mapping[str, str]) -> Admitted | ObjectAnswer:
        payload = headers.get("x-amz-content-sha256", UNSIGNED)
        if "authorization" in headers and "x-amz-content-sha256" not in headers:
            return s3_error(400, "InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
        if not is_promise(payload):
            return s3_error(400, "InvalidArgument", "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, or a valid sha256")
        found = self._verifier.check(method, target, headers, payload)
        return s3_refusal(found) if isinstance(found, Refusal) else Admitted(payload, found)

    def examine(
        self, admitted: Admitted, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> ObjectAnswer | None:
        """With the body: None when all is in order."""
        if admitted.whole:
            found = self._verifier.check(method, target, headers, sha256(body).hexdigest())
            return other_refusal(found, headers.get("content-type", "")) if isinstance(found, Refusal) else None
        if admitted.signed is None or keeps_promise(admitted.payload, body, admitted.signed):
            return None
        if admitted.payload.startswith("STREAMING"):
            return s3_refusal(Refusal(Fault.SIGNATURE))
        return s3_error(400, "XAmzContentSHA256Mismatch", MISMATCH)


def _service_of(headers: Mapping[str, str]) -> str:
    """Which service a request is for, by its signature; S3 where it does not say."""
    claim = claim_of(headers.get("authorization", "").rpartition("Signature=")[0])
    return "s3" if claim is None else claim.service
