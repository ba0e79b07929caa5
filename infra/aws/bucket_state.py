"""How a bucket is set up that no stack makes: kept by `destroy`, left by a creation that failed, or the user's.

Only reads. Read next: `bucket_plan.py`, which decides what is to be set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import DENIED, ApiError

NOT_SET = frozenset(
    {
        "NoSuchLifecycleConfiguration",
        "NoSuchBucketPolicy",
        "NoSuchPublicAccessBlockConfiguration",
        "ServerSideEncryptionConfigurationNotFoundError",
    }
)
KEY_ID = re.compile(r"[0-9a-f-]{36}|mrk-[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class BucketState:
    """What is known of it. None: these credentials may not ask."""

    name: str
    rules: tuple[Mapping[str, Any], ...] | None = None
    """of its lifecycle"""
    policy: Mapping[str, Any] | None = None
    """{}: none"""
    closed: bool | None = None
    """is every kind of public access blocked?"""
    runs: bool | None = None
    """does it hold any run?"""
    key: str | None = None
    """ARN of the KMS key that encrypts it; empty: S3's own keys, which need no rights"""


def find_bucket(door: Door, name: str, partition: str, account: str) -> BucketState | None:
    """The bucket as it is, or None where there is none. Raises AwsError."""
    try:
        door.call("s3", "head_bucket", {"Bucket": name})
    except ApiError as error:
        if error.code in ("404", "NoSuchBucket"):
            return None
        if error.code not in DENIED:
            raise
        return BucketState(name)
    lifecycle = _asked(door, "get_bucket_lifecycle_configuration", name)
    policy = _asked(door, "get_bucket_policy", name)
    access = _asked(door, "get_public_access_block", name)
    encryption = _asked(door, "get_bucket_encryption", name)
    return BucketState(
        name,
        rules=None if lifecycle is None else tuple(lifecycle.get("Rules", ())),
        policy=None if policy is None else json.loads(policy.get("Policy", "{}")),
        closed=None if access is None else _closed(access),
        runs=_holds_runs(door, name),
        key=None if encryption is None else _key(door, encryption, f"arn:{partition}:kms:{door.region}:{account}:key/"),
    )


def _holds_runs(door: Door, bucket: str) -> bool | None:
    try:
        return bool(
            door.call("s3", "list_objects_v2", {"Bucket": bucket, "Prefix": "runs/", "MaxKeys": 1}).get("KeyCount")
        )
    except ApiError as error:
        if error.code in DENIED:
            return None
        raise


def _asked(door: Door, operation: str, bucket: str) -> dict[str, Any] | None:
    """The answer, {} where it was never set, None where one may not ask."""
    try:
        return door.call("s3", operation, {"Bucket": bucket})
    except ApiError as error:
        if error.code in NOT_SET:
            return {}
        if error.code in DENIED:
            return None
        raise


def _closed(access: Mapping[str, Any]) -> bool:
    blocks = access.get("PublicAccessBlockConfiguration", {})
    return len(blocks) == 4 and all(blocks.values())


def _key(door: Door, encryption: Mapping[str, Any], prefix: str) -> str | None:
    """The key of its default encryption, by ARN."""
    for rule in encryption.get("ServerSideEncryptionConfiguration", {}).get("Rules", ()):
        default = rule.get("ApplyServerSideEncryptionByDefault", {})
        key = str(default.get("KMSMasterKeyID", ""))
        if not str(default.get("SSEAlgorithm", "")).startswith("aws:kms") or key.endswith("alias/aws/s3"):
            continue
        if ":key/" in key:
            return key
        return prefix + key if KEY_ID.fullmatch(key) else _key_of_alias(door, key)
    return ""


def _key_of_alias(door: Door, alias: str) -> str | None:
    if not alias:  # AWS's own key for S3
        return ""
    try:
        return str(door.call("kms", "describe_key", {"KeyId": alias})["KeyMetadata"]["Arn"])
    except ApiError as error:
        if error.code in DENIED:
            return None
        raise
