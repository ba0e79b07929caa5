"""Plans as data, from what exists to what is wanted: each case has its golden file of steps, in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gradmux.infra.aws.destroy_plan import plan_destroy
from gradmux.infra.aws.direct_plan import plan_direct
from gradmux.infra.aws.errors import AwsError, SettingsError
from gradmux.infra.aws.observe import Function, Observed, Stack
from gradmux.infra.aws.plan import Plan
from gradmux.infra.aws.settings import Architecture, Builder, DeploySettings
from gradmux.infra.aws.stack_plan import plan_stack
from gradmux.infra.aws.template import parameters
from tests.infra.aws.fakes import NAMES, check_golden, source

NOTHING = Observed(NAMES)
PLAIN = DeploySettings()
OWN = DeploySettings(role="arn:aws:iam::123456789012:role/mine", bucket="mine", name="gradmux")
X86, ARM = Architecture.X86, Architecture.ARM


def stack(settings: DeploySettings = PLAIN, status: str = "CREATE_COMPLETE", **fields: Any) -> Stack:
    """The stack that these settings lead to."""
    told = parameters(
        settings,
        image=NAMES.image(source(settings.architecture).tag),
        bucket=NAMES.bucket,
        make_bucket=True,
        python="3.12",
        torch="2.0",
    )
    return Stack(status, {**told, **fields}, {}, current=True)


def deployed(**changes: Any) -> Observed:
    """Everything as it is after deploying with the plain settings."""
    full = Observed(NAMES, stack(), own_bucket=True, images=frozenset({source().tag}), repository=True)
    return replace(full, **changes)


def function(**changes: Any) -> Function:
    """The function that deploying with OWN makes."""
    configuration = {
        "Role": OWN.role,
        "MemorySize": 2048,
        "Timeout": 60,
        "EphemeralStorage": {"Size": 512},
        "Environment": {"Variables": {"GRADMUX_CACHE_BYTES": str(OWN.cache_bytes)}},
        "Architectures": ["x86_64"],
        "LastUpdateStatus": "Successful",
    }
    image = NAMES.image(source().tag)
    return replace(Function(image, configuration, {"gradmux": "gradmux"}, reserved=None, retries=0), **changes)


OLDER = deployed(stack=stack(ImageUri=NAMES.image("old")), images=frozenset({"old"}))


def deploy(settings: DeploySettings, observed: Observed, docker: Architecture | None = None) -> Plan:
    return plan_stack(settings, observed, source(settings.architecture), docker)


def titles(plan: Plan) -> list[str]:
    return [step.title for step in plan.steps]


@pytest.mark.parametrize(
    ("name", "settings", "observed", "docker"),
    [
        ("create-in-the-cloud", PLAIN, NOTHING, None),
        ("create-by-docker", PLAIN, NOTHING, X86),
        ("create-for-arm", replace(PLAIN, architecture=ARM), NOTHING, X86),
        ("create-after-destroy", PLAIN, replace(NOTHING, own_bucket=True), X86),
        ("create-after-failure", PLAIN, replace(NOTHING, stack=stack(status="ROLLBACK_COMPLETE")), X86),
        ("update-memory", replace(PLAIN, memory_mb=4096), deployed(), None),
        ("update-image", PLAIN, OLDER, X86),
        ("go-on-after-failed-build", PLAIN, deployed(stack=stack(ImageUri=""), images=frozenset()), X86),
        ("update-after-failed-rollback", PLAIN, deployed(stack=stack(status="UPDATE_ROLLBACK_FAILED")), None),
        ("deploy-twice", PLAIN, deployed(), X86),
    ],
)
def test_golden_stack_plans(name: str, settings: DeploySettings, observed: Observed, docker: Architecture) -> None:
    check_golden(name, deploy(settings, observed, docker))


@pytest.mark.parametrize(
    ("name", "settings", "observed"),
    [
        ("direct-create", replace(OWN, reserved=64), NOTHING),
        (
            "direct-update",
            replace(OWN, memory_mb=3008),
            replace(NOTHING, repository=True, function=function(image="x")),
        ),
        (
            "direct-twice",
            OWN,
            replace(NOTHING, repository=True, images=frozenset({source().tag}), function=function()),
        ),
    ],
)
def test_golden_direct_plans(name: str, settings: DeploySettings, observed: Observed) -> None:
    check_golden(name, plan_direct(settings, observed, source(), X86))


@pytest.mark.parametrize(
    ("name", "observed", "delete_data"),
    [
        ("destroy", deployed(), False),
        ("destroy-with-data", deployed(), True),
        ("destroy-what-is-left", replace(NOTHING, own_bucket=True), True),
        ("destroy-direct", replace(NOTHING, repository=True, function=function()), False),
        ("destroy-nothing", NOTHING, True),
    ],
)
def test_golden_destroy_plans(name: str, observed: Observed, delete_data: bool) -> None:
    check_golden(name, plan_destroy(observed, delete_data=delete_data))


def test_the_function_never_points_to_an_image_that_is_not_there() -> None:
    for plan in (deploy(PLAIN, NOTHING, X86), deploy(PLAIN, OLDER, X86)):
        steps = titles(plan)
        assert steps.index("docker push") < steps.index("cloudformation.update_stack")
        assert steps[-1] == "wait lambda.function_active_v2"


def test_every_change_of_a_function_is_waited_for() -> None:
    updating = function(image="x", configuration={"LastUpdateStatus": "InProgress"}, retries=None)
    steps = titles(plan_direct(OWN, replace(NOTHING, repository=True, function=updating), source(), X86))
    assert steps[2:] == [
        "wait lambda.function_updated_v2",
        "lambda.update_function_code",
        "wait lambda.function_updated_v2",
        "lambda.tag_resource",
        "lambda.update_function_configuration",
        "wait lambda.function_updated_v2",
        "lambda.put_function_event_invoke_config",
    ]


def test_a_finished_image_makes_the_stack_in_one_go() -> None:
    plan = deploy(replace(PLAIN, image="123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1"), NOTHING)
    assert titles(plan) == [
        "cloudformation.create_stack",
        "wait cloudformation.stack_create_complete",
        "wait lambda.function_active_v2",
    ]


def test_a_bucket_of_the_users_is_used_and_never_deleted() -> None:
    settings = replace(PLAIN, bucket="mine")
    plan = deploy(settings, NOTHING, X86)
    values = {
        each["ParameterKey"]: each["ParameterValue"] for each in plan.to_json()["steps"][0]["arguments"]["Parameters"]
    }
    assert (values["BucketName"], values["MakeBucket"]) == ("mine", "false")
    theirs = deployed(stack=stack(BucketName="mine", MakeBucket="false"), own_bucket=False)
    assert deploy(settings, theirs, X86).steps == ()
    gone = plan_destroy(theirs, delete_data=True)
    assert "s3.delete_bucket" not in titles(gone)
    assert gone.leaves == ("s3://mine, which is yours: it was there before",)


def test_a_stack_keeps_its_bucket() -> None:
    with pytest.raises(SettingsError, match="uses bucket gradmux-123456789012-us-east-1, not mine"):
        deploy(replace(PLAIN, bucket="mine"), deployed())


def test_a_stack_of_an_older_template_is_updated() -> None:
    older = deployed(stack=replace(stack(), current=False))
    assert "cloudformation.update_stack" in titles(deploy(PLAIN, older))


@pytest.mark.parametrize("status", ["CREATE_IN_PROGRESS", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "DELETE_IN_PROGRESS"])
def test_nobody_deploys_into_anothers_deployment(status: str) -> None:
    busy = deployed(stack=stack(status=status))
    with pytest.raises(AwsError, match=f"{status}: somebody deploys"):
        deploy(PLAIN, busy)
    with pytest.raises(AwsError, match=status):
        plan_destroy(busy, delete_data=False)


def test_a_function_of_somebody_else_is_left_alone() -> None:
    plan = plan_destroy(replace(NOTHING, function=function(tags={})), delete_data=True)
    assert plan.steps == ()
    assert "not made by us" in plan.leaves[0]


@pytest.mark.parametrize(
    ("settings", "docker", "builds"),
    [
        (PLAIN, X86, "docker build"),
        (PLAIN, ARM, "codebuild.start_build"),
        (replace(PLAIN, builder=Builder.CLOUD), X86, "codebuild.start_build"),
        (replace(PLAIN, builder=Builder.DOCKER), ARM, "docker build"),
        (replace(PLAIN, architecture=ARM), ARM, "docker build"),
    ],
)
def test_the_architecture_decides_who_builds(settings: DeploySettings, docker: Architecture, builds: str) -> None:
    assert builds in titles(deploy(settings, NOTHING, docker))


def test_without_docker_one_can_neither_ask_for_it_nor_do_without_a_stack() -> None:
    with pytest.raises(SettingsError, match="start docker, or use --builder cloud"):
        deploy(replace(PLAIN, builder=Builder.DOCKER), NOTHING)
    with pytest.raises(SettingsError, match="give --image"):
        plan_direct(OWN, NOTHING, source(), None)
    with pytest.raises(SettingsError, match="there is a stack gradmux"):
        plan_direct(OWN, deployed(), source(), X86)
