"""What happens when AWS fails in the middle: the reason, what exists, how to go on. Played by a scripted door."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from gradmux.infra.aws.errors import ApiError, AwsError, StepFailed
from gradmux.infra.aws.execute import Executor
from gradmux.infra.aws.observe import Observed
from gradmux.infra.aws.plan import Call, CloudBuild, DockerBuild, DockerPush, EmptyBucket, Plan, Step, Wait
from gradmux.infra.aws.settings import Architecture, DeploySettings
from gradmux.infra.aws.stack_plan import plan_stack
from gradmux.infra.aws.template import template_text
from gradmux.infra.aws.troubles import hint
from tests.infra.aws.fakes import NAMES, Answer, FakeDocker, ScriptedDoor, source

CALLER = {"Arn": "arn:aws:sts::123456789012:assumed-role/me/session"}
NO_STACK = ApiError("describe_stacks", "ValidationError", "Stack with id gradmux does not exist")
GONE = ApiError("read", "ResourceNotFoundException", "")
EMPTY_ACCOUNT: dict[str, Answer | list[Answer]] = {
    "sts.get_caller_identity": CALLER,
    "cloudformation.describe_stacks": NO_STACK,
    "s3.head_bucket": ApiError("s3.head_bucket", "404", ""),
    "ecr.list_images": ApiError("ecr.list_images", "RepositoryNotFoundException", ""),
    "lambda.get_function": GONE,
}
IMAGE = NAMES.image(source().tag)


def event(resource: str, status: str, reason: str = "") -> dict[str, str]:
    return {"LogicalResourceId": resource, "ResourceStatus": status, "ResourceStatusReason": reason}


def run(door: ScriptedDoor, *steps: Step, docker: FakeDocker | None = None) -> list[int]:
    """Carries the steps out and says which began."""
    begun: list[int] = []
    executor = Executor(door, lambda number, _: begun.append(number), docker, source(), sleep=lambda _: None)
    executor.run(Plan(steps), "gradmux")
    return begun


def failure(door: ScriptedDoor, *steps: Step, docker: FakeDocker | None = None) -> list[str]:
    with pytest.raises(StepFailed) as failed:
        run(door, *steps, docker=docker)
    return str(failed.value).splitlines()


def test_a_failed_creation_tells_the_first_resource_that_failed() -> None:
    """The stack is gone again by then, so that only its id leads to its events."""
    plan = plan_stack(DeploySettings(), Observed(NAMES), source(), Architecture.X86)
    events = [
        event("gradmux", "DELETE_COMPLETE"),
        event("Repository", "CREATE_FAILED", "Resource creation cancelled"),
        event("WorkerRole", "CREATE_FAILED", "User: me is not authorized to perform: iam:CreateRole"),
        event("gradmux", "CREATE_IN_PROGRESS", "User Initiated"),
        event("Older", "CREATE_FAILED", "of another time"),
    ]
    door = ScriptedDoor(
        {
            **EMPTY_ACCOUNT,
            "cloudformation.create_stack": {"StackId": "arn:the-stack"},
            "wait cloudformation.stack_create_complete": AwsError("Waiter StackCreateComplete failed"),
            "cloudformation.describe_stack_events": {"StackEvents": events},
        }
    )
    lines = failure(door, *plan.steps)
    assert lines[0] == (
        "step 2 of 7 failed (wait cloudformation.stack_create_complete): "
        "WorkerRole: User: me is not authorized to perform: iam:CreateRole"
    )
    assert 'bring a role and a bucket (docs/aws.md, "Without admin rights")' in lines[1]
    assert lines[2] == "exists now: nothing"
    assert ("cloudformation.describe_stack_events", {"StackName": "arn:the-stack"}) in door.passed


def test_a_failed_update_leaves_the_old_function_and_says_so() -> None:
    stack = {"StackStatus": "UPDATE_ROLLBACK_COMPLETE", "Parameters": [], "Outputs": []}
    function = {"Configuration": {"State": "Active"}, "Code": {"ImageUri": "old"}}
    door = ScriptedDoor(
        {
            **EMPTY_ACCOUNT,
            "cloudformation.update_stack": {"StackId": "arn:the-stack"},
            "wait cloudformation.stack_update_complete": AwsError("Waiter StackUpdateComplete failed"),
            "cloudformation.describe_stack_events": {
                "StackEvents": [
                    event(
                        "Function",
                        "UPDATE_FAILED",
                        "Specified ReservedConcurrentExecutions ... "
                        "UnreservedConcurrentExecution below its minimum value of [10].",
                    ),
                    event("gradmux", "UPDATE_IN_PROGRESS", "User Initiated"),
                ]
            },
            "cloudformation.describe_stacks": {"Stacks": [stack]},
            "cloudformation.get_template": {"TemplateBody": template_text()},
            "s3.head_bucket": {},
            "ecr.list_images": {"imageIds": [{"imageTag": "old"}, {"imageDigest": "sha256:1"}]},
            "lambda.get_function": function,
            "lambda.get_function_concurrency": {},
            "lambda.get_function_event_invoke_config": {"MaximumRetryAttempts": 0},
        }
    )
    update = Call("cloudformation", "update_stack", {"StackName": "gradmux"}, "")
    lines = failure(door, update, Wait("cloudformation", "stack_update_complete", {"StackName": "gradmux"}, ""))
    assert "minimum value" in lines[0]
    assert "reserve less" in lines[1]
    assert lines[2] == (
        "exists now: stack gradmux (UPDATE_ROLLBACK_COMPLETE), bucket gradmux-123456789012-us-east-1, "
        "1 worker image, function gradmux-worker (Active)"
    )
    assert lines[3].startswith("repeat the command to go on")


def build(status: str, **more: Any) -> dict[str, Any]:
    return {"id": "gradmux-image:1", "buildStatus": status, **more}


def test_a_build_in_the_cloud_is_waited_for() -> None:
    answers: list[Answer] = [{"builds": [build("IN_PROGRESS")]}, {"builds": [build("SUCCEEDED")]}]
    script: Mapping[str, Answer | list[Answer]] = {
        "codebuild.start_build": {"build": build("IN_PROGRESS")},
        "codebuild.batch_get_builds": answers,
    }
    door = ScriptedDoor(script)
    assert run(door, CloudBuild({"projectName": "gradmux-image"}, "")) == [1]
    assert door.titles == ["codebuild.start_build", "codebuild.batch_get_builds", "codebuild.batch_get_builds"]


def test_a_build_that_never_ends_is_given_up() -> None:
    running = {"builds": [build("IN_PROGRESS")]}
    script = {**EMPTY_ACCOUNT, "codebuild.start_build": {"build": build("IN_PROGRESS")}}
    door = ScriptedDoor({**script, "codebuild.batch_get_builds": running})
    lines = failure(door, CloudBuild({}, "", limit_s=20.0))
    assert "has not ended after 20 s" in lines[0]
    assert door.titles.count("codebuild.batch_get_builds") == 4


def test_a_failed_build_tells_its_phase_and_where_its_log_is() -> None:
    failed = build(
        "FAILED",
        phases=[
            {"phaseType": "SUBMITTED", "phaseStatus": "SUCCEEDED"},
            {"phaseType": "BUILD", "phaseStatus": "FAILED", "contexts": [{"message": "docker build: exit status 1"}]},
            {"phaseType": "COMPLETED"},
        ],
        logs={"deepLink": "https://console/log"},
    )
    door = ScriptedDoor({**EMPTY_ACCOUNT, "codebuild.start_build": {"build": failed}})
    lines = failure(door, CloudBuild({}, ""))
    assert "ended FAILED, BUILD: docker build: exit status 1, its log: https://console/log" in lines[0]


def test_what_is_so_already_is_no_failure() -> None:
    no_update = ApiError("update_stack", "ValidationError", "No updates are to be performed.")
    door = ScriptedDoor({**EMPTY_ACCOUNT, "cloudformation.update_stack": no_update, "s3.delete_bucket": GONE})
    run(door, Call("cloudformation", "update_stack", {}, "", ("No updates are to be performed",)))
    lines = failure(door, Call("s3", "delete_bucket", {}, "", ("NoSuchBucket",)))
    assert "ResourceNotFoundException" in lines[0]


def test_the_registrys_password_goes_to_docker_and_nowhere_else() -> None:
    token = base64.b64encode(b"AWS:s3cret").decode()
    door = ScriptedDoor({"ecr.get_authorization_token": {"authorizationData": [{"authorizationToken": token}]}})
    docker = FakeDocker()
    steps = (
        DockerBuild(IMAGE, "base", "linux/amd64", ""),
        DockerPush(IMAGE, NAMES.registry, ""),
    )
    run(door, *steps, docker=docker)
    assert docker.built == [IMAGE]
    assert docker.pushed == [(IMAGE, "s3cret")]
    assert "s3cret" not in str(Plan(steps).to_json())


def test_a_bucket_is_emptied_page_by_page() -> None:
    versions: list[Answer] = [
        {"Versions": [{"Key": "a", "VersionId": "1"}], "DeleteMarkers": [{"Key": "a", "VersionId": "2"}]},
        {"Versions": [{"Key": "b", "VersionId": "null"}]},
        {},
    ]
    door = ScriptedDoor(
        {
            "s3.list_multipart_uploads": [{"Uploads": [{"Key": "c", "UploadId": "9"}]}, {}],
            "s3.abort_multipart_upload": {},
            "s3.list_object_versions": versions,
            "s3.delete_objects": {},
        }
    )
    run(door, EmptyBucket("bucket", ""))
    deleted = [arguments["Delete"]["Objects"] for title, arguments in door.passed if title == "s3.delete_objects"]
    assert deleted == [
        [{"Key": "a", "VersionId": "1"}, {"Key": "a", "VersionId": "2"}],
        [{"Key": "b", "VersionId": "null"}],
    ]


def test_an_object_that_cannot_be_deleted_ends_it() -> None:
    door = ScriptedDoor(
        {
            **EMPTY_ACCOUNT,
            "s3.list_multipart_uploads": {},
            "s3.list_object_versions": {"Versions": [{"Key": "a", "VersionId": "1"}]},
            "s3.delete_objects": {"Errors": [{"Key": "a", "Code": "AccessDenied", "Message": "locked"}]},
        }
    )
    assert "s3://bucket/a: AccessDenied: locked" in failure(door, EmptyBucket("bucket", ""))[0]


def test_steps_after_a_failure_do_not_begin() -> None:
    door = ScriptedDoor({**EMPTY_ACCOUNT, "s3.one": {}, "s3.two": ApiError("s3.two", "Boom", "")})
    begun: list[int] = []
    executor = Executor(door, lambda number, _: begun.append(number))
    with pytest.raises(StepFailed, match="step 2 of 3"):
        executor.run(
            Plan((Call("s3", "one", {}, ""), Call("s3", "two", {}, ""), Call("s3", "three", {}, ""))), "gradmux"
        )
    assert begun == [1, 2]


def test_when_nothing_can_be_read_any_more_the_cause_is_still_told() -> None:
    expired = ApiError("sts.get_caller_identity", "ExpiredToken", "The security token included is expired")
    door = ScriptedDoor({"s3.one": expired, "sts.get_caller_identity": expired})
    lines = failure(door, Call("s3", "one", {}, ""))
    assert "ExpiredToken" in lines[0]
    assert lines[1] == "the credentials have expired: log in again, then repeat"
    assert lines[2].startswith("what exists now cannot be read")


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("User is not authorized to perform: cloudformation:CreateStack", "bring a role and a bucket"),
        ("Cannot have more than 0 builds in queue for the account", "--builder docker"),
        ("The image manifest, config or layer media type for the source image is not supported.", "image index"),
        ("Cannot delete a policy attached to entities. (DeleteConflict)", "detach it"),
        ("BucketNotEmpty: The bucket you tried to delete is not empty", "a worker wrote"),
        ("gradmux-worker already exists", "take another --name"),
        ("something new", ""),
    ],
)
def test_what_aws_says_has_its_advice(reason: str, advice: str) -> None:
    assert advice in hint(reason)
    assert bool(hint(reason)) == bool(advice)
