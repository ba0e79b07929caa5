"""What of a deployment exists in the account now. Only reads; nothing is remembered on this machine.

Read next: `stack_plan.py`, `direct_plan.py` and `destroy_plan.py`, which decide what is to be done about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gradmux.infra.aws.bucket_state import BucketState, find_bucket
from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import DENIED, NO_REGION, ApiError, AwsError
from gradmux.infra.aws.names import Account, Names
from gradmux.infra.aws.template import template_text

MISSING = frozenset(
    {
        "404",
        "NoSuchBucket",
        "ResourceNotFoundException",
        "RepositoryNotFoundException",
        "ImageNotFoundException",
        "UnknownOperationException",  # the emulator's answer to what it does not have
    }
)
TAG = "gradmux"
"""Tag of everything that was made by us; its value is the deployment's name."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A CloudFormation stack."""

    status: str
    parameters: Mapping[str, str]
    outputs: Mapping[str, str]
    current: bool
    """made from the template of this version of gradmux"""

    @property
    def busy(self) -> bool:
        return self.status.endswith("_IN_PROGRESS") and self.status != "REVIEW_IN_PROGRESS"


@dataclass(frozen=True, slots=True)
class Function:
    """The Lambda function."""

    image: str
    configuration: Mapping[str, Any]
    tags: Mapping[str, str]
    reserved: int | None
    retries: int | None
    """of asynchronous invocations; None: never set, so AWS's two"""

    @property
    def updating(self) -> bool:
        return self.configuration.get("LastUpdateStatus") == "InProgress"


@dataclass(frozen=True, slots=True)
class Observed:
    """What exists."""

    names: Names
    stack: Stack | None = None
    own_bucket: bool = False
    """the deployment's own bucket is there, with or without the stack"""
    images: frozenset[str] = field(default_factory=frozenset)
    """tags in the deployment's own repository"""
    repository: bool = False
    function: Function | None = None
    bucket: BucketState | None = None
    """the bucket in use, or to be used, where no stack makes it"""


def find_account(door: Door) -> Account:
    """Whose credentials these are, and for which region. Raises AwsError."""
    if not door.region:
        raise AwsError(NO_REGION)
    return Account.of(door.call("sts", "get_caller_identity", {})["Arn"], door.region)


def observe(door: Door, stack_name: str, bucket: str | None = None) -> Observed:
    """Everything that plans depend on; asks only what may be asked who may read. `bucket`: the user's. Raises AwsError.

    What these credentials may not even read counts as not known, and the plan goes the longer way.
    """
    names = Names(stack_name, find_account(door))
    tags = _image_tags(door, names)
    stack = find_stack(door, stack_name)
    return Observed(
        names=names,
        stack=stack,
        own_bucket=_bucket_exists(door, names),
        images=frozenset(tags or ()),
        repository=tags is not None,
        function=find_function(door, names.function),
        bucket=_bucket_in_use(door, names, stack, bucket),
    )


def _bucket_in_use(door: Door, names: Names, stack: Stack | None, wanted: str | None) -> BucketState | None:
    """None where the stack makes it, or there is none yet."""
    if stack is not None and stack.parameters.get("MakeBucket") != "false":
        return None
    name = stack.parameters.get("BucketName", names.bucket) if stack else wanted or names.bucket
    return find_bucket(door, name, names.account.partition, names.account.id)


def find_stack(door: Door, name: str) -> Stack | None:
    """The stack of that name, or None."""
    try:
        (found,) = door.call("cloudformation", "describe_stacks", {"StackName": name})["Stacks"]
    except ApiError as error:
        if error.code == "ValidationError" and "does not exist" in error.message:
            return None
        raise
    if found["StackStatus"] == "DELETE_COMPLETE":
        return None
    body = (_may_see(door, "cloudformation", "get_template", {"StackName": name}) or {}).get("TemplateBody")
    return Stack(
        status=found["StackStatus"],
        parameters={each["ParameterKey"]: each["ParameterValue"] for each in found.get("Parameters", [])},
        outputs={each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])},
        current=isinstance(body, str) and body.strip() == template_text().strip(),
    )


def _bucket_exists(door: Door, names: Names) -> bool:
    arguments = {"Bucket": names.bucket, "ExpectedBucketOwner": names.account.id}
    return _may_see(door, "s3", "head_bucket", arguments) is not None


def _image_tags(door: Door, names: Names) -> list[str] | None:
    """Tags of all images; None without a repository."""
    tags: list[str] = []
    arguments: dict[str, Any] = {"repositoryName": names.repository, "filter": {"tagStatus": "TAGGED"}}
    while True:
        page = _may_see(door, "ecr", "list_images", arguments)
        if page is None:
            return None
        tags += [each["imageTag"] for each in page["imageIds"] if "imageTag" in each]
        if not page.get("nextToken"):
            return tags
        arguments = {**arguments, "nextToken": page["nextToken"]}


def find_function(door: Door, name: str) -> Function | None:
    """The function of that name, or None."""
    found = _found(door, "lambda", "get_function", {"FunctionName": name})
    if found is None:
        return None
    concurrency = _may_see(door, "lambda", "get_function_concurrency", {"FunctionName": name}) or {}
    events = _may_see(door, "lambda", "get_function_event_invoke_config", {"FunctionName": name}) or {}
    return Function(
        image=found.get("Code", {}).get("ImageUri", ""),
        configuration=found["Configuration"],
        tags=found.get("Tags", {}),
        reserved=concurrency.get("ReservedConcurrentExecutions"),
        retries=events.get("MaximumRetryAttempts"),
    )


def _may_see(door: Door, service: str, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer, or None when there is no such thing, or these credentials may not see it."""
    try:
        return _found(door, service, operation, arguments)
    except ApiError as error:
        if error.code in DENIED:
            return None
        raise


def _found(door: Door, service: str, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer, or None when there is no such thing."""
    try:
        return door.call(service, operation, arguments)
    except ApiError as error:
        if error.code in MISSING:
            return None
        raise
