"""Deploying with CloudFormation: everything is one stack, and the plan makes it, mends it or brings it up to date.

Pure. A stack that does not exist is made in two goes, because its image needs a repository first; otherwise the image
is built first and the stack updated once, so that the function never points to an image that is not there.
Read next: `direct_plan.py`, for those who may not make stacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradmux.infra.aws.bucket_plan import configuring, notes
from gradmux.infra.aws.building import building
from gradmux.infra.aws.errors import AwsError, SettingsError
from gradmux.infra.aws.image import ImageSource
from gradmux.infra.aws.names import Names
from gradmux.infra.aws.observe import TAG, Observed, Stack
from gradmux.infra.aws.plan import Call, Plan, Step, Wait
from gradmux.infra.aws.settings import Architecture, DeploySettings
from gradmux.infra.aws.template import parameters, template_text
from gradmux.infra.aws.wishes import changes

FAILED = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED", "REVIEW_IN_PROGRESS"})
"""States of a stack that was never finished: nothing but deleting leads out of them."""
UNKNOWN = frozenset({"UPDATE_ROLLBACK_FAILED", "UPDATE_FAILED"})
"""States in which the stack's resources may not be as its parameters say."""
STUCK = frozenset({"IMPORT_ROLLBACK_FAILED"})
"""States that only its owner can lead it out of."""
NOTHING_TO_DO = "No updates are to be performed"


def plan_stack(settings: DeploySettings, observed: Observed, source: ImageSource, docker: Architecture | None) -> Plan:
    """The steps from what was observed to a working function; none when there is nothing to do.

    Raises: AwsError when the stack is being changed by somebody else, SettingsError.
    """
    names, stack = observed.names, observed.stack
    if stack is not None and (stack.busy or stack.status in STUCK):
        raise AwsError(f"stack {names.stack} is {stack.status}: {_way_out(stack.status, names)}")
    steps: list[Step] = []
    if stack is not None and stack.status in FAILED:
        steps += deleting(names, "a stack whose creation failed can only be deleted")
        stack = None
    if observed.bucket is not None:
        steps += configuring(settings, names, observed.bucket)
    if stack is not None and stack.status == "UPDATE_ROLLBACK_FAILED":
        steps += _going_back(names)
    bucket, make_bucket = _bucket(settings, observed, stack)
    image = settings.image or names.image(source.tag)
    built = settings.image is not None or (source.tag in observed.images and stack is not None)
    versions = ("", "") if settings.image else (source.python, source.torch)  # nobody here knows a finished image's
    wanted = parameters(
        settings, image=image, bucket=bucket, make_bucket=make_bucket, python=versions[0], torch=versions[1]
    )
    if stack is None:
        first = wanted if built else {**wanted, "ImageUri": ""}
        steps += _changing("create", names, first, _creation_reason(built))
    if not built:
        steps += building(settings, names, source, bucket, docker)
    if (stack is None and not built) or (stack is not None and _differs(stack, wanted)):
        steps += _changing("update", names, wanted, "the function, with its image and limits")
    if any(step.title.startswith("cloudformation.") for step in steps):
        steps.append(_ready(names))
    return Plan(tuple(steps), changes=changes(observed, settings), notes=tuple(notes(settings, names, observed.bucket)))


def _way_out(status: str, names: Names) -> str:
    """What to do about a stack that cannot be changed now."""
    if status in STUCK:
        return "an import failed, and so did its undoing: see its events in CloudFormation, or take another --name"
    advice = "somebody deploys; wait until that is over, then repeat"
    if status == "UPDATE_IN_PROGRESS":
        advice += f" (to end it: aws cloudformation cancel-update-stack --stack-name {names.stack})"
    return advice


def deleting(names: Names, why: str) -> list[Step]:
    """The stack goes; its bucket stays."""
    return [
        Call("cloudformation", "delete_stack", {"StackName": names.stack}, why),
        Wait("cloudformation", "stack_delete_complete", {"StackName": names.stack}, "until the stack is gone"),
    ]


def _bucket(settings: DeploySettings, observed: Observed, stack: Stack | None) -> tuple[str, bool]:
    """The bucket's name, and whether the stack makes it. A stack keeps its bucket for life."""
    names = observed.names
    if stack is None:
        name = settings.bucket or names.bucket
        return name, settings.bucket is None and not observed.own_bucket
    has = stack.parameters.get("BucketName", names.bucket)
    if settings.bucket not in (None, has):
        raise SettingsError(
            f"stack {names.stack} uses bucket {has}, not {settings.bucket}: leave --bucket out, or take another --name"
        )
    return has, stack.parameters.get("MakeBucket") == "true"


def _differs(stack: Stack, wanted: Mapping[str, str]) -> bool:
    """Whether an update is due. After one that failed nobody knows, and CloudFormation will say."""
    return not stack.current or stack.parameters != wanted or stack.status in UNKNOWN


def _creation_reason(built: bool) -> str:
    return "everything" if built else "bucket, roles, logs, image repository and build project; no function yet"


def _going_back(names: Names) -> list[Step]:
    arguments = {"StackName": names.stack}
    return [
        Call("cloudformation", "continue_update_rollback", arguments, "an update failed, and so did its undoing"),
        Wait("cloudformation", "stack_rollback_complete", arguments, "until the stack is as it was before"),
    ]


def _changing(verb: str, names: Names, values: Mapping[str, str], why: str) -> list[Step]:
    """create_stack or update_stack, and waiting for it."""
    arguments: dict[str, Any] = {
        "StackName": names.stack,
        "TemplateBody": template_text(),
        "Parameters": [{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()],
        "Capabilities": ["CAPABILITY_IAM"],
        "Tags": [{"Key": TAG, "Value": names.stack}],
    }
    if verb == "create":
        arguments["OnFailure"] = "DELETE"
    settled = (NOTHING_TO_DO,) if verb == "update" else ()
    return [
        Call("cloudformation", f"{verb}_stack", arguments, why, settled),
        Wait("cloudformation", f"stack_{verb}_complete", {"StackName": names.stack}, f"until the stack is {verb}d"),
    ]


def _ready(names: Names) -> Wait:
    why = "until Lambda has prepared the image and takes calls"
    return Wait("lambda", "function_active_v2", {"FunctionName": names.function}, why, limit_s=600.0)
