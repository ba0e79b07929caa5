"""Is a request signed with the emulator's key? AWS Signature Version 4, from the side of AWS.

    Verifier(secret, region, service).refusal(method, target, headers, payload, now_s) -> Refusal | None

What is wrong has a kind of its own; each service words it in its own way (`answers.py`, `s3_answers.py`). The signing
key depends on the day alone and is kept, as is what a client's Authorization says before its signature, so a request
costs two short hashes. Knows no sockets. The client's side is `orchestrator/fleets/signing.py`.
Source: "AWS Signature Version 4 for API requests", AWS documentation.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from gradmux.infra.local.canonical import canonical_targets, parameters, seconds_of
from gradmux.infra.local.secret import TOKEN, Secret

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY = sha256(b"").hexdigest()
SIGNATURE = "Signature="
LONGEST_S = 604_800
"""seconds that a URL may be good for: a week"""
SKEW_S: Mapping[str, float] = {"s3": 900.0}
"""by service; all others tolerate `OTHERS_SKEW_S`"""
OTHERS_SKEW_S = 300.0
UNSIGNABLE = frozenset({"x-amz-user-agent"})
"""names that begin like AWS's own and need not be signed"""


class Fault(Enum):
    """What is wrong with a request."""

    MISSING = auto()
    """it is not signed"""
    MALFORMED = auto()
    """nothing that could be checked"""
    UNKNOWN_KEY = auto()
    TOKEN = auto()
    """a session token that belongs to no key here"""
    SCOPE = auto()
    """signed for another service or region"""
    SIGNATURE = auto()
    UNSIGNED_HEADERS = auto()
    SKEWED = auto()
    """signed too long ago, or not yet"""
    EXPIRED = auto()
    """a URL that is not good any more"""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a signature says of itself."""

    access_key: str
    day: str
    """YYYYMMDD"""
    region: str
    service: str
    names: tuple[str, ...]
    """of signed headers"""
    stamp: str = ""
    """of a URL: its X-Amz-Date"""
    expires_s: int = 0
    """of a URL: how long it is good for"""
    token: str | None = None
    """of a URL"""
    scope: str = field(init=False)
    listed: str = field(init=False)
    """the names as they are signed"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", f"{self.day}/{self.region}/{self.service}/aws4_request")
        object.__setattr__(self, "listed", ";".join(self.names))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not taken."""

    fault: Fault
    detail: str = ""
    access_key: str = ""
    stamp: str = ""
    """as the client dated it"""
    signature: str = ""
    """as the client sent it"""
    now_s: float = 0.0


class Signed(NamedTuple):
    """A request whose signature holds: what signatures of its chunks go on from."""

    signature: str
    stamp: str
    scope: str
    key: bytes


class Verifier:
    """Checks requests of one emulator."""

    def __init__(self, secret: Secret, region: str, service: str | None = None) -> None:
        """`service` None: any one, and then any region but for S3."""
        self._secret, self._region, self._service = secret, region, service
        self._keys: dict[tuple[str, str, str], bytes] = {}

    def check(
        self, method: str, target: str, headers: Mapping[str, str], payload: str, now_s: float | None = None
    ) -> Signed | Refusal:
        """Whether the request is signed with our key. Header names in lower case, values joined by commas.

        `payload` is the SHA-256 of the body in hexadecimal, or what the client says in its place; `now_s` None: now.
        """
        now_s = time.time() if now_s is None else now_s
        authorization = headers.get("authorization")
        if authorization is not None:
            head, found, signature = authorization.rpartition(SIGNATURE)
            claim = claim_of(head) if found else None
            stamp, without = headers.get("x-amz-date", ""), ""
        elif "X-Amz-Signature=" in target:
            asked = parameters(target)
            claim, signature, without = claim_of_url(asked), asked.get("X-Amz-Signature", ""), "X-Amz-Signature"
            stamp = asked.get("X-Amz-Date", "")
        else:
            return Refusal(Fault.MISSING, now_s=now_s)
        if claim is None:
            return Refusal(Fault.MALFORMED, "the Authorization is not one of AWS4-HMAC-SHA256", now_s=now_s)
        fault = self._fault(claim, stamp, headers, now_s)
        if fault is None:
            signed = self._signed(claim, stamp, method, target, without, headers, payload, signature)
            if signed is not None:
                return signed
            fault = Refusal(Fault.SIGNATURE)
        return replace(fault, access_key=claim.access_key, stamp=stamp, signature=signature, now_s=now_s)

    def _fault(self, claim: Claim, stamp: str, headers: Mapping[str, str], now_s: float) -> Refusal | None:
        """What can be told without a hash."""
        if claim.access_key != self._secret.access_key:
            return Refusal(Fault.UNKNOWN_KEY)
        token = headers.get("x-amz-security-token", claim.token)
        if token is not None and token != TOKEN:
            return Refusal(Fault.TOKEN)
        if self._service not in (None, claim.service):
            return Refusal(Fault.SCOPE, f"Credential should be scoped to correct service: '{self._service}'.")
        if (self._service or claim.service == "s3") and claim.region != self._region:
            return Refusal(Fault.SCOPE, f"the region '{claim.region}' is wrong; expecting '{self._region}'")
        unsigned = _unsigned(claim.names, tuple(headers))
        if unsigned:
            return Refusal(Fault.UNSIGNED_HEADERS, unsigned)
        return _out_of_time(claim, stamp, now_s)

    def _signed(
        self, claim: Claim, stamp: str, method: str, target: str, without: str, headers: Mapping[str, str],
        payload: str, signature: str,
    ) -> Signed | None:  # fmt: skip
        """None when the signature is another's."""
        if stamp[:8] != claim.day:
            return None
        tail = f"{_lines(claim.names, headers)}\n\n{claim.listed}\n{payload}"
        key, scope = self._key(claim), claim.scope
        for place in canonical_targets(target, claim.service, without):
            hashed = sha256(f"{method}\n{place}\n{tail}".encode("latin-1", "replace")).hexdigest()
            text = f"{ALGORITHM}\n{stamp}\n{scope}\n{hashed}".encode("latin-1", "replace")
            if signature.isascii() and hmac.compare_digest(hmac.digest(key, text, "sha256").hex(), signature):
                return Signed(signature, stamp, scope, key)
        return None

    def _key(self, claim: Claim) -> bytes:
        """The signing key of the claim's day, kept as long as no other day is asked for."""
        place = (claim.day, claim.region, claim.service)
        found = self._keys.get(place)
        if found is None:
            found = f"AWS4{self._secret.secret_key}".encode()
            for part in (*place, "aws4_request"):
                found = hmac.digest(found, part.encode(), "sha256")
            if len(self._keys) >= 64:
                self._keys.clear()
            self._keys[place] = found
        return found


@lru_cache(maxsize=256)
def claim_of(head: str) -> Claim | None:
    """What an Authorization header says before its signature; None when it is no such header."""
    algorithm, _, rest = head.partition(" ")
    fields = dict(field.strip().partition("=")[::2] for field in rest.split(",") if field.strip())
    if algorithm != ALGORITHM or set(fields) != {"Credential", "SignedHeaders"}:
        return None
    return _claim(fields["Credential"], fields["SignedHeaders"])


def claim_of_url(asked: Mapping[str, str]) -> Claim | None:
    """The same of a signed URL, by its parameters."""
    expires = asked.get("X-Amz-Expires", "3600")
    claim = _claim(asked.get("X-Amz-Credential", ""), asked.get("X-Amz-SignedHeaders", ""))
    if claim is None or asked.get("X-Amz-Algorithm") != ALGORITHM:
        return None
    if not (expires.isascii() and expires.isdigit()) or not 0 < int(expires[:9]) <= LONGEST_S:
        return None
    token = asked.get("X-Amz-Security-Token")
    return replace(claim, stamp=asked.get("X-Amz-Date", ""), expires_s=int(expires), token=token)


def _claim(credential: str, names: str) -> Claim | None:
    parts = credential.split("/")
    if len(parts) < 5 or parts[-1] != "aws4_request" or not names or names != names.lower():
        return None
    day, region, service = parts[-4:-1]
    return Claim("/".join(parts[:-4]), day, region, service, tuple(names.split(";")))


def _out_of_time(claim: Claim, stamp: str, now_s: float) -> Refusal | None:
    signed_s, allowed_s = seconds_of(stamp), SKEW_S.get(claim.service, OTHERS_SKEW_S)
    if signed_s is None:
        return Refusal(Fault.MALFORMED, "the request has no valid X-Amz-Date")
    if claim.expires_s:
        if now_s > signed_s + claim.expires_s:
            return Refusal(Fault.EXPIRED)
        return None if now_s > signed_s - allowed_s else Refusal(Fault.SKEWED)
    return None if abs(now_s - signed_s) <= allowed_s else Refusal(Fault.SKEWED)


@lru_cache(maxsize=256)
def _unsigned(signed: tuple[str, ...], sent: tuple[str, ...]) -> str:
    """Names, in one line, that must be signed and are not; empty when all are."""
    wanted = {"host", *(name for name in sent if name.startswith("x-amz-"))} - UNSIGNABLE
    return ", ".join(sorted(wanted.difference(signed)))


def _lines(names: tuple[str, ...], headers: Mapping[str, str]) -> str:
    """The signed headers, one a line, with single spaces in their values."""
    lines = "\n".join([f"{name}:{headers.get(name, '')}" for name in names])
    if " " not in lines and "\t" not in lines:
        return lines
    return "\n".join([f"{name}:{' '.join(headers.get(name, '').split())}" for name in names])
