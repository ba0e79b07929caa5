"""What an image has: its Dockerfile's packages, and the requirements of its deployment, by stack or without one."""

from __future__ import annotations

from typing import Any

import pytest

from gradmux.infra.aws.errors import ApiError, AwsError
from gradmux.infra.aws.packages import packages_of, pinned
from gradmux.infra.aws.settings import packed
from gradmux.orchestrator.training.trial.packages import WORKER
from tests.infra.aws.fakes import ScriptedDoor

REQUIREMENTS = "scikit-learn>=1.5  # trees\n\ntimm[full]==1.0\n"


def door(tags: dict[str, str], variables: dict[str, str], stack: Any = None) -> ScriptedDoor:
    configuration = {"Environment": {"Variables": variables}}
    return ScriptedDoor(
        {
            "lambda.get_function": {"Configuration": configuration, "Tags": tags, "Code": {}},
            "lambda.get_function_concurrency": {},
            "lambda.get_function_event_invoke_config": {},
            "cloudformation.describe_stacks": stack or ApiError("describe_stacks", "ValidationError", "does not exist"),
        }
    )


def test_the_image_has_what_every_worker_needs() -> None:
    assert set(WORKER) <= pinned()
    assert "torch" in pinned()


def test_requirements_of_a_function_without_a_stack() -> None:
    told = packages_of(door({"gradmux:python": "3.12"}, {"GRADMUX_REQUIREMENTS": packed(REQUIREMENTS)}), "f")
    assert told.sure
    assert told.names == pinned() | {"scikit-learn", "timm"}


def test_requirements_of_a_stack() -> None:
    parameters = [{"ParameterKey": "Requirements", "ParameterValue": packed("einops\n")}]
    stack = {"Stacks": [{"StackStatus": "UPDATE_COMPLETE", "Parameters": parameters, "Outputs": []}]}
    script = door({"gradmux:python": "3.12", "aws:cloudformation:stack-name": "s"}, {}, stack)
    script._script["cloudformation.get_template"] = [{"TemplateBody": ""}]
    told = packages_of(script, "f")
    assert told.sure
    assert told.names == pinned() | {"einops"}


@pytest.mark.parametrize("tags", [{}, {"gradmux:python": ""}])
def test_an_image_of_the_users_own_is_not_known(tags: dict[str, str]) -> None:
    told = packages_of(door(tags, {}), "f")
    assert not told.sure
    assert told.names == pinned()


def test_a_line_that_names_no_package_leaves_it_open() -> None:
    script = door({"gradmux:python": "3.12"}, {"GRADMUX_REQUIREMENTS": packed("-r more.txt\nhttps://host/a.whl\n")})
    assert not packages_of(script, "f").sure


def test_without_rights_nothing_is_known() -> None:
    assert not packages_of(ScriptedDoor({"lambda.get_function": AwsError("no network")}), "f").sure
