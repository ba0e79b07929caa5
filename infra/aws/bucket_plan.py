"""Setting up a bucket that the stack does not make, so that it is what a bucket made by the stack would be.

Pure. One that an earlier deployment made is set up wholly; of one that the user brings only the age of runs is set, and
only when it was asked for. Rules and statements that are not ours stay. Read next: `stack_plan.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gradmux.infra.aws.bucket_state import BucketState
from gradmux.infra.aws.names import Names
from gradmux.infra.aws.plan import Call, Step
from gradmux.infra.aws.settings import DeploySettings
from gradmux.infra.aws.template import resource

FORGET_RUNS = "forget-runs"
"""Id of the rule that deletes runs by age"""
TLS = "OnlyEncryptedConnections"
"""Sid of the statement that refuses unencrypted connections"""


def configuring(settings: DeploySettings, names: Names, state: BucketState) -> list[Step]:
    """The calls that are still due; none where all is as wanted, or where one may not look."""
    rules = _wanted_rules(settings, names, state)
    steps: list[Step] = []
    if rules is not None and not _same(rules, state.rules or ()):
        steps.append(_lifecycle(state.name, rules))
    if state.name != names.bucket:
        return steps
    if state.closed is False:
        steps.append(
            _call("put_public_access_block", names, resource("Bucket", names)["PublicAccessBlockConfiguration"])
        )
    key = settings.kms_key
    if state.key is not None and key and state.key != key:
        steps.append(_encryption(state.name, key))
    if state.policy is not None and not _has_tls(state.policy):
        steps.append(_policy(names, state.policy))
    return steps


def kept_days(state: BucketState | None) -> int | None:
    """After how many days runs are deleted there; 0: never; None: not known, or never set up and without runs."""
    if state is None or state.rules is None:
        return None
    found = next((rule for rule in state.rules if rule.get("ID") == FORGET_RUNS), None)
    if found is not None:
        days: int = found.get("Expiration", {}).get("Days", 0)
        return days
    return 0 if state.runs or any(rule.get("ID") == "forget-builds" for rule in state.rules) else None


def notes(settings: DeploySettings, names: Names, state: BucketState | None) -> list[str]:
    """What people should know of a bucket that is theirs, or that cannot be looked at."""
    if state is None:
        return []
    if state.name == names.bucket:
        unknown = None in (state.rules, state.policy, state.closed, state.key)
        return [f"s3://{state.name}: these credentials may not see how it is set up; it stays so"] if unknown else []
    age = f"runs are deleted after {settings.keep_days} days" if settings.keep_days else "runs are kept for ever"
    told = [f"s3://{state.name} is yours: its encryption and access stay as they are; {age} (--keep-days)"]
    if state.policy is not None and not _has_tls(state.policy):
        told.append(f"s3://{state.name} takes unencrypted connections: deny aws:SecureTransport = false in its policy")
    return told


def _wanted_rules(settings: DeploySettings, names: Names, state: BucketState) -> list[Mapping[str, Any]] | None:
    """None where one may not look: what is there would be lost."""
    if state.rules is None:
        return None
    ours = [
        _api_rule(rule) for rule in resource("Bucket", names)["LifecycleConfiguration"]["Rules"] if "Fn::If" not in rule
    ]
    if state.name != names.bucket:
        ours = []
    if settings.keep_days:
        ours.append(
            {
                "ID": FORGET_RUNS,
                "Status": "Enabled",
                "Filter": {"Prefix": "runs/"},
                "Expiration": {"Days": settings.keep_days},
            }
        )
    ids = {rule["ID"] for rule in ours} | {FORGET_RUNS}
    return [*(rule for rule in state.rules if rule.get("ID") not in ids), *ours]


def _api_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule as S3's API has it, from CloudFormation's."""
    made: dict[str, Any] = {
        "ID": rule["Id"],
        "Status": rule["Status"],
        "Filter": {"Prefix": rule.get("Prefix", "")},
    }
    if "ExpirationInDays" in rule:
        made["Expiration"] = {"Days": rule["ExpirationInDays"]}
    if "AbortIncompleteMultipartUpload" in rule:
        made["AbortIncompleteMultipartUpload"] = dict(rule["AbortIncompleteMultipartUpload"])
    return made


def _same(wanted: list[Mapping[str, Any]], has: tuple[Mapping[str, Any], ...]) -> bool:
    def sorted_rules(rules: Any) -> list[str]:
        return sorted(json.dumps(_plain(rule), sort_keys=True, default=str) for rule in rules)

    return sorted_rules(wanted) == sorted_rules(has)


def _plain(rule: Mapping[str, Any]) -> dict[str, Any]:
    """With the prefix in one place: S3 gives it back in either."""
    told = {name: value for name, value in rule.items() if name not in ("Prefix", "Filter")}
    prefix = rule.get("Filter", {}).get("Prefix", rule.get("Prefix", "")) if rule.keys() & {"Prefix", "Filter"} else ""
    return {**told, "Filter": {**rule.get("Filter", {}), "Prefix": prefix}}


def _has_tls(policy: Mapping[str, Any]) -> bool:
    return any(
        str(each.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport", "")).lower() == "false"
        for each in policy.get("Statement", ())
        if each.get("Effect") == "Deny"
    )


def _lifecycle(bucket: str, rules: list[Mapping[str, Any]]) -> Call:
    if not rules:
        return Call("s3", "delete_bucket_lifecycle", {"Bucket": bucket}, "nothing in it is deleted by age any more")
    arguments = {"Bucket": bucket, "LifecycleConfiguration": {"Rules": rules}}
    return Call("s3", "put_bucket_lifecycle_configuration", arguments, "what is deleted there by age")


def _encryption(bucket: str, key: str) -> Call:
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": default, "BucketKeyEnabled": True}]}
    arguments = {"Bucket": bucket, "ServerSideEncryptionConfiguration": rules}
    return Call("s3", "put_bucket_encryption", arguments, "new objects are encrypted with your key")


def _policy(names: Names, has: Mapping[str, Any]) -> Call:
    statement = resource("BucketPolicy", names)["PolicyDocument"]["Statement"]
    merged = {"Version": "2012-10-17", **has, "Statement": [*has.get("Statement", ()), *statement]}
    arguments = {"Bucket": names.bucket, "Policy": json.dumps(merged)}
    return Call("s3", "put_bucket_policy", arguments, "unencrypted connections are refused")


def _call(operation: str, names: Names, access: Mapping[str, Any]) -> Call:
    arguments = {"Bucket": names.bucket, "PublicAccessBlockConfiguration": dict(access)}
    return Call("s3", operation, arguments, "no object of it can be made public")
