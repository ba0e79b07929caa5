"""Removing a deployment: all that deploying made, and the data only when that is asked for.

Pure. Read next: `execute.py`.
"""

from __future__ import annotations

from gradmux.infra.aws.errors import AwsError
from gradmux.infra.aws.names import Names
from gradmux.infra.aws.observe import TAG, Function, Observed
from gradmux.infra.aws.plan import Call, EmptyBucket, Plan, Step
from gradmux.infra.aws.stack_plan import deleting


def plan_destroy(observed: Observed, *, delete_data: bool) -> Plan:
    """The steps to nothing, and what is left. Raises AwsError when the stack is being changed by somebody else."""
    names, stack = observed.names, observed.stack
    steps: list[Step] = []
    if stack is not None:
        if stack.busy:
            raise AwsError(f"stack {names.stack} is {stack.status}: wait until that is over, then repeat")
        if observed.images:
            steps.append(_deleting_images(names, observed.images))
        steps += deleting(names, "function, roles, logs, image repository and build project")
    elif _made_directly(observed.function, names):
        steps += _deleting_parts(names)
    if stack is None and observed.repository:
        arguments = {"repositoryName": names.repository, "force": True}
        steps.append(Call("ecr", "delete_repository", arguments, "the repository with its images", ("NotFound",)))
    if observed.own_bucket and delete_data:
        steps += [
            EmptyBucket(names.bucket, "S3 deletes only empty buckets"),
            Call("s3", "delete_bucket", {"Bucket": names.bucket}, "the bucket itself", ("NoSuchBucket",)),
        ]
    return Plan(tuple(steps), tuple(_leaves(observed, delete_data)))


def _made_directly(function: Function | None, names: Names) -> bool:
    """A function of that name that somebody else made is not ours to delete."""
    return function is not None and function.tags.get(TAG) == names.stack


def _deleting_images(names: Names, tags: frozenset[str]) -> Step:
    arguments = {"repositoryName": names.repository, "imageIds": [{"imageTag": tag} for tag in sorted(tags)]}
    return Call("ecr", "batch_delete_image", arguments, "the worker's images", ("NotFound",))


def _deleting_parts(names: Names) -> list[Step]:
    return [
        Call("lambda", "delete_function", {"FunctionName": names.function}, "the worker", ("ResourceNotFound",)),
        Call("logs", "delete_log_group", {"logGroupName": names.log_group}, "its logs", ("ResourceNotFound",)),
    ]


def _leaves(observed: Observed, delete_data: bool) -> list[str]:
    """What stays, and why."""
    names, stack = observed.names, observed.stack
    left = []
    if observed.own_bucket and not delete_data:
        left.append(
            f"s3://{names.bucket} with data sets, models and results, which S3 bills; "
            f"`gradmux destroy --name {names.stack} --delete-data` removes it"
        )
    used = stack.parameters.get("BucketName", names.bucket) if stack else names.bucket
    if used != names.bucket:
        left.append(f"s3://{used}, which is yours: it was there before")
    if stack is None and observed.function is not None:
        if _made_directly(observed.function, names):
            left.append(f"role {observed.function.configuration.get('Role', '?')}, which is yours, and your bucket")
        else:
            left.append(f"function {names.function}, which is not tagged {TAG}={names.stack}: not made by us")
    return left
