"""Which refusals of Lambda's Invoke API heal by themselves, and what to do about those that do not.

An error of the API says that the function did not run; its name says why. The names, codes and meanings are those of
AWS's Lambda API reference (Invoke, Errors), as botocore's service model has them. Pure. Read next: `replies.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Verdict(StrEnum):
    """What became of one POST."""

    ANSWERED = "answered"
    """the function ran, well or not"""
    THROTTLED = "throttled"
    """429: it did not run"""
    UNAVAILABLE = "unavailable"
    """an error that may pass, or no connection: it did not run"""
    EXPIRED = "expired"
    """the credentials are too old"""
    REFUSED = "refused"
    """it will not run, however often one asks"""
    LOST = "lost"
    """the connection broke after the request was sent, or a gateway's answer came: it may have run"""
    SILENT = "silent"
    """no answer in longer than the function may take"""


EXPIRED = ("ExpiredTokenException", "ExpiredToken")
HEALING = frozenset(
    {
        # 409: the function is just being updated, started or provisioned.
        "ResourceConflictException",
        "SnapStartNotReadyException",
        "SnapStartRegenerationFailureException",
        "CodeArtifactUserPendingException",
        # 408: a snapshot or a file system was not there in time.
        "SnapStartTimeoutException",
        "EFSMountTimeoutException",
        "EFSMountConnectivityException",
        "S3FilesMountTimeoutException",
        "S3FilesMountConnectivityException",
    }
)
"""Errors below 500 that pass."""

KEY = "the environment of the function is encrypted with a KMS key that"
NETWORK = "or take the function out of its VPC: workers need nothing but S3"
LASTING: Mapping[str, str] = MappingProxyType(
    {
        "KMSAccessDeniedException": f"{KEY} its role may not use: allow the role kms:Decrypt in the key's policy, and "
        "configure the function anew when its role was made again under its old name",
        "KMSDisabledException": f"{KEY} is disabled: enable the key, or give the function another one",
        "KMSInvalidStateException": f"{KEY} is not usable, for example about to be deleted: restore the key, or give "
        "the function another one",
        "KMSNotFoundException": f"{KEY} does not exist: give the function another one",
        "EC2AccessDeniedException": "the function's role may not make network interfaces: attach AWS's policy "
        f"AWSLambdaVPCAccessExecutionRole to it, {NETWORK}",
        "InvalidSubnetIDException": f"name subnets that exist in the function's VPC settings, {NETWORK}",
        "InvalidSecurityGroupIDException": f"name security groups that exist in the function's VPC settings, {NETWORK}",
        "InvalidRuntimeException": "the function's runtime is not supported any more: `gradmux deploy` makes it from "
        "an image",
        "InvalidZipFileException": "the function's code cannot be unpacked: `gradmux deploy` makes it from an image",
    }
)
"""5xx errors that last until somebody mends what is wrong -> what that is."""


BUSY = 503


def verdict_on(status: int, name: str, *, comes_again: bool = False) -> Verdict:
    """What a refusal with this HTTP status and error name means. `comes_again`: it says when to ask again.

    Without a name it is not Lambda's: a gateway that says 502 or 504 may have passed the call on, and what may have run
    is not sent again. A 503 that says when to come again was not passed on (RFC 9110, 15.6.4).
    """
    if status == 429:
        return Verdict.THROTTLED
    if name in LASTING:
        return Verdict.REFUSED
    if status >= 500 and not name and not (status == BUSY and comes_again):
        return Verdict.LOST
    if status >= 500 or name in HEALING:
        return Verdict.UNAVAILABLE
    return Verdict.EXPIRED if name in EXPIRED else Verdict.REFUSED


def told(name: str, message: str, reason: str = "") -> str:
    """The refusal in one line. `reason` says of a 429 which limit it was, the account's or the function's."""
    advice = LASTING.get(name)
    line = f"{name} ({reason}): {message}" if reason else f"{name}: {message}"
    return f"{line} -> {advice}" if advice else line
