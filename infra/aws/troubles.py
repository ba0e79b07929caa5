"""Why a step failed, in words: AWS keeps the reason elsewhere than in the error.

CloudFormation's waiter only says that the stack failed; the reason is in the events. CodeBuild's is in its phases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import AwsError
from gradmux.infra.aws.observe import Observed

CONSEQUENCES = ("Resource creation cancelled", "Resource update cancelled", "The following resource(s) failed")
HINTS = (
    (
        r"(?s)iam:|CAPABILITY|not authorized to perform",
        "these credentials may not do that: ask for the right, or bring a role and a bucket (docs/aws.md, "
        '"Without admin rights")',
    ),
    (
        r"(?i)MemorySize.*(?:3008|less than or equal)",
        "a new account's functions may have at most 3,008 MB: --memory 3008, or ask AWS's support for more",
    ),
    (
        r"KMS\.|kms:|KMSAccessDenied",
        "the bucket's key: name it by --kms-key ARN, and allow these credentials kms:Decrypt and kms:GenerateDataKey",
    ),
    (
        r"UnreservedConcurrentExecution",
        "AWS keeps at least some of the account's concurrency unreserved: reserve less, or nothing (--reserved)",
    ),
    (
        r"Cannot have more than 0 builds",
        "a new account may not build yet: use docker (--builder docker), or ask AWS for CodeBuild quota",
    ),
    (
        r"image manifest, config or layer media type",
        "Lambda takes no image index: build with --builder cloud, or push with BUILDX_NO_DEFAULT_ATTESTATIONS=1",
    ),
    (
        r"exec format error",
        "the image is for another architecture: build with --builder cloud, or choose --architecture",
    ),
    (
        r"DeleteConflict|policy attached to entities",
        "somebody still has the stack's client policy: detach it from users and roles",
    ),
    (r"BucketNotEmpty", "a worker wrote while the bucket was being emptied"),
    (r"AlreadyExists|already exists", "a resource of that name was made elsewhere: remove it, or take another --name"),
    (r"ExpiredToken|security token .* expired", "the credentials have expired: log in again, then repeat"),
)
"""What AWS says -> what to do."""


def stack_failure(door: Door, stack: str) -> str:
    """The first thing that failed in a stack's last operation, with AWS's reason; empty when none is told."""
    try:
        events = door.call("cloudformation", "describe_stack_events", {"StackName": stack})["StackEvents"]
    except AwsError:
        return ""
    first = ""
    for event in events:  # the newest first
        reason = event.get("ResourceStatusReason", "")
        if event["ResourceStatus"].endswith("_FAILED") and not reason.startswith(CONSEQUENCES):
            first = f"{event['LogicalResourceId']}: {reason or event['ResourceStatus']}"
        if reason == "User Initiated":
            break
    return first


def build_failure(build: Mapping[str, Any]) -> str:
    """Which phase of a build failed, why, and where its log is."""
    told = [f"build {build['id']} ended {build['buildStatus']}"]
    for phase in build.get("phases", []):
        if phase.get("phaseStatus", "SUCCEEDED") != "SUCCEEDED":
            reasons = [each["message"] for each in phase.get("contexts", []) if each.get("message")]
            told.append(f"{phase['phaseType']}: {'; '.join(reasons) or phase['phaseStatus']}")
    if link := build.get("logs", {}).get("deepLink"):
        told.append(f"its log: {link}")
    return ", ".join(told)


def hint(reason: str) -> str:
    """What to do about a reason; empty when that is not known."""
    return next((advice for pattern, advice in HINTS if re.search(pattern, reason)), "")


def existing(observed: Observed) -> str:
    """What there is of a deployment, in one line."""
    names, found = observed.names, []
    if observed.stack is not None:
        found.append(f"stack {names.stack} ({observed.stack.status})")
    if observed.own_bucket:
        found.append(f"bucket {names.bucket}")
    if observed.images:
        found.append(f"{len(observed.images)} worker image{'s' if len(observed.images) > 1 else ''}")
    if observed.function is not None:
        state = observed.function.configuration.get("State", "in an unknown state")
        found.append(f"function {names.function} ({state})")
    return ", ".join(found) or "nothing"
