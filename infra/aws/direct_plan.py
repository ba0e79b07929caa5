"""Deploying without CloudFormation, for those who may make a function but no stacks or roles: they bring both.

Pure. Lambda refuses a change while another is under way (ResourceConflict), so every change is waited for.
Read next: `destroy_plan.py`.
"""

from __future__ import annotations

import json
from typing import Any

from gradmux.infra.aws.bucket_plan import configuring, notes
from gradmux.infra.aws.building import by_docker
from gradmux.infra.aws.errors import SettingsError
from gradmux.infra.aws.image import ImageSource
from gradmux.infra.aws.names import Names
from gradmux.infra.aws.observe import TAG, Function, Observed
from gradmux.infra.aws.plan import Call, Plan, Step, Wait
from gradmux.infra.aws.settings import Architecture, DeploySettings, packed
from gradmux.infra.aws.template import repository_policy
from gradmux.infra.aws.wishes import changes
from gradmux.lambda_worker.contract import PROTOCOL

EVENT_AGE_S = 300


def plan_direct(settings: DeploySettings, observed: Observed, source: ImageSource, docker: Architecture | None) -> Plan:
    """The steps to a working function under the user's own role and bucket. Raises SettingsError."""
    names = observed.names
    if observed.stack is not None:
        raise SettingsError(f"there is a stack {names.stack}, which owns {names.function}: take another --name")
    image = settings.image or names.image(source.tag)
    steps: list[Step] = []
    if settings.image is None and source.tag not in observed.images:
        if docker is None:
            raise SettingsError("no docker engine answers here, and without a stack nothing else builds: give --image")
        steps += [] if observed.repository else _repository(names)
        steps += by_docker(names, source)
    if observed.function is None:
        steps += _log_group(settings, names) + _creating(settings, names, source, image)
    else:
        steps += _updating(settings, names, observed.function, source, image)
    steps += _calling(settings, names, observed.function)
    bucket = observed.bucket
    if bucket is not None:
        steps += configuring(settings, names, bucket)
    return Plan(tuple(steps), changes=changes(observed, settings), notes=tuple(notes(settings, names, bucket)))


def _repository(names: Names) -> list[Step]:
    arguments = {
        "repositoryName": names.repository,
        "imageTagMutability": "IMMUTABLE",
        "tags": [{"Key": TAG, "Value": names.stack}],
    }
    policy = {"repositoryName": names.repository, "policyText": json.dumps(repository_policy(names))}
    return [
        Call("ecr", "create_repository", arguments, "where Lambda takes images from", ("RepositoryAlreadyExists",)),
        Call("ecr", "set_repository_policy", policy, "Lambda may read them"),
    ]


def _log_group(settings: DeploySettings, names: Names) -> list[Step]:
    group = {"logGroupName": names.log_group}
    tags = {"tags": {TAG: names.stack}}
    return [
        Call(
            "logs", "create_log_group", {**group, **tags}, "else Lambda makes it, without retention", ("AlreadyExists",)
        ),
        Call("logs", "put_retention_policy", {**group, "retentionInDays": settings.log_days}, "logs cost money"),
    ]


def _creating(settings: DeploySettings, names: Names, source: ImageSource, image: str) -> list[Step]:
    arguments = {
        "FunctionName": names.function,
        "PackageType": "Image",
        "Code": {"ImageUri": image},
        "Architectures": [settings.architecture.value],
        "Tags": {TAG: names.stack, "gradmux:bucket": settings.bucket or "", **_versions(settings, source)},
        **_configuration(settings),
    }
    return [
        Call("lambda", "create_function", arguments, "the worker"),
        _wait(names, "function_active_v2", "until Lambda has prepared the image"),
    ]


def _updating(
    settings: DeploySettings, names: Names, function: Function, source: ImageSource, image: str
) -> list[Step]:
    """What differs, one change after the other."""
    steps: list[Step] = []
    if function.updating:
        steps.append(_wait(names, "function_updated_v2", "somebody's change is still under way"))
    architectures = function.configuration.get("Architectures", ["x86_64"])
    if function.image != image or architectures != [settings.architecture.value]:
        code = {"FunctionName": names.function, "ImageUri": image, "Architectures": [settings.architecture.value]}
        steps += [
            Call("lambda", "update_function_code", code, "the new image"),
            _wait(names, "function_updated_v2", "a change while another is under way is refused"),
            Call(
                "lambda",
                "tag_resource",
                {"Resource": names.function_arn, "Tags": _versions(settings, source)},
                "its versions",
            ),
        ]
    wanted = _configuration(settings)
    if any(function.configuration.get(name) != value for name, value in wanted.items()):
        arguments = {"FunctionName": names.function, **wanted}
        steps += [
            Call("lambda", "update_function_configuration", arguments, "memory, timeout, /tmp and role"),
            _wait(names, "function_updated_v2", "a change while another is under way is refused"),
        ]
    return steps


def _calling(settings: DeploySettings, names: Names, function: Function | None) -> list[Step]:
    """How the function may be called: no retries behind our back, and how often at a time."""
    name = {"FunctionName": names.function}
    steps: list[Step] = []
    if function is None or function.retries != 0:
        events = {**name, "MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": EVENT_AGE_S}
        steps.append(Call("lambda", "put_function_event_invoke_config", events, "retries are the client's alone"))
    reserved = None if function is None else function.reserved
    if settings.reserved is not None and settings.reserved != reserved:
        arguments = {**name, "ReservedConcurrentExecutions": settings.reserved}
        steps.append(Call("lambda", "put_function_concurrency", arguments, "as many calls at a time, and no more"))
    elif settings.reserved is None and reserved is not None:
        steps.append(Call("lambda", "delete_function_concurrency", name, "back to the account's shared limit"))
    return steps


def _configuration(settings: DeploySettings) -> dict[str, Any]:
    """As Lambda's API takes it, and gives it back."""
    return {
        "Role": settings.role,
        "MemorySize": settings.memory_mb,
        "Timeout": settings.timeout_s,
        "EphemeralStorage": {"Size": settings.tmp_mb},
        "Environment": {"Variables": _variables(settings)},
    }


def _variables(settings: DeploySettings) -> dict[str, str]:
    variables = {"GRADMUX_CACHE_BYTES": str(settings.cache_bytes)}
    if settings.requirements:  # there is no stack to keep them
        variables["GRADMUX_REQUIREMENTS"] = packed(settings.requirements)
    return variables


def _versions(settings: DeploySettings, source: ImageSource) -> dict[str, str]:
    """Of what is in the image; of a finished one nobody here knows them."""
    if settings.image:
        return {"gradmux:protocol": str(PROTOCOL), "gradmux:python": "", "gradmux:torch": ""}
    return {"gradmux:protocol": str(PROTOCOL), "gradmux:python": source.python, "gradmux:torch": source.torch}


def _wait(names: Names, waiter: str, why: str) -> Wait:
    return Wait("lambda", waiter, {"FunctionName": names.function}, why, limit_s=600.0)
