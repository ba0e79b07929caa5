"""Why S3 refused, in its own words: code, message and region, out of an error document; and what to do about it.

Pure. Source: "Error responses", Amazon S3 API reference. Read next: `store.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from types import MappingProxyType

from gradmux.orchestrator.strangers import is_page, told_of

FIELD = r"(?s)<{0}>\s*(.*?)\s*</{0}>"
EXPECTING = re.compile(r"expecting '([a-z0-9-]+)'")
ENDPOINT = re.compile(r"\bs3[.-]([a-z]{2}(?:-[a-z]+)+-\d)\b")
RENEWABLE = ("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired")
"""Credentials that were good once: newer ones may come."""
ELSEWHERE = (
    "PermanentRedirect",
    "TemporaryRedirect",
    "Redirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
)
ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "AccessDenied": "allow it in the policies of these credentials, of the bucket, and of the key that encrypts it",
        "AllAccessDisabled": "the bucket is closed: ask its owner, or AWS's support",
        "ExpiredToken": "log in again, then `gradmux resume` goes on",
        "InvalidAccessKeyId": "correct the credentials (AWS_PROFILE, AWS_ACCESS_KEY_ID)",
        "SignatureDoesNotMatch": "correct the secret key, or this machine's clock",
        "RequestTimeTooSkewed": "set this machine's clock",
        "InvalidObjectState": "the object is archived: restore it, or copy it to the class STANDARD",
        "NoSuchBucket": "correct the bucket's name",
        "SlowDown": "other programs ask the bucket too often",
    }
)
"""S3's code -> what to do."""
KMS_ADVICE = (
    "enable the bucket's KMS key, and allow these credentials and the worker's role kms:GenerateDataKey and "
    "kms:Decrypt with it"
)


@dataclass(frozen=True, slots=True)
class Cause:
    """What S3 said."""

    code: str
    message: str = ""
    region: str = ""
    """of the bucket, where that is what was wrong"""
    date: str = ""
    """by S3's clock"""

    @classmethod
    def of(cls, text: str) -> Cause | None:
        """Out of an error's text that holds S3's document; None where there is none."""
        code = _field("Code", text)
        if not code:
            return None
        message = _field("Message", text)
        region = _field("Region", text) or _match(EXPECTING, message) or _match(ENDPOINT, _field("Endpoint", text))
        return cls(code, message, region if code in ELSEWHERE else "", _field("ServerTime", text))

    @classmethod
    def of_response(cls, status: int, headers: Mapping[str, str], code: str, message: str, date: str = "") -> Cause:
        """Out of an answer that has been read already. `headers` are named in lower case."""
        if code.isdigit() or not code:
            code = "PermanentRedirect" if status in (301, 307, 308) else f"HTTP {status}"
        region = headers.get("x-amz-bucket-region", "") if code in ELSEWHERE or status in (301, 307, 400) else ""
        return cls(code, message, region or _match(EXPECTING, message), date or headers.get("date", ""))

    @property
    def renewable(self) -> bool:
        """May it pass with newer credentials?"""
        return self.code in RENEWABLE

    def told(self) -> str:
        """In one line, with what to do."""
        line = f"{self.code}: {' '.join(self.message.split())}" if self.message else self.code
        advice = self._advice()
        return f"{line} -> {advice}" if advice else line

    def _advice(self) -> str:
        if self.region:
            return f"the bucket is in region {self.region}: set AWS_REGION to it, and use workers there"
        if self.code.startswith("KMS."):
            return KMS_ADVICE
        return ADVICE.get("ExpiredToken" if self.renewable else self.code, "")


def stranger_told(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """The same of an answer; empty where it is S3's own."""
    return told_of(status, headers, body, "S3's answer") if is_page(headers, body) else ""


def _field(name: str, text: str) -> str:
    found = re.search(FIELD.format(name), text)
    return unescape(found[1]) if found else ""


def _match(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""
