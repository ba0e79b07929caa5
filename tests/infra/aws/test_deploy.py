"""Deploying, updating and destroying against moto's control plane, through boto3.

moto's CloudFormation makes no bucket policies, access blocks, build projects and event configurations, knows not all
properties of a function, does not wait, and never fails. The template itself is looked at in `test_template.py`, and
failures are played by a scripted door in `test_execute.py`.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import replace
from typing import Any

import boto3
import pytest

from gradmux.infra.aws.destroy_plan import plan_destroy
from gradmux.infra.aws.direct_plan import plan_direct
from gradmux.infra.aws.door import BotoDoor
from gradmux.infra.aws.errors import AwsError, StepFailed
from gradmux.infra.aws.execute import Executor
from gradmux.infra.aws.names import Names
from gradmux.infra.aws.observe import find_account, observe
from gradmux.infra.aws.plan import Call, Plan, Wait
from gradmux.infra.aws.settings import Architecture, DeploySettings
from gradmux.infra.aws.stack_plan import plan_stack
from tests.infra.aws.fakes import NAMES, FakeDocker, RecordingDoor, put_image, source

pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse:UserWarning")

PLAIN = DeploySettings(reserved=64)
ROLE_TRUST = '{"Version": "2012-10-17", "Statement": []}'


class Deployer:
    """What `gradmux deploy` and `destroy` do, without the command line."""

    def __init__(self, door: RecordingDoor, docker: Architecture | None = Architecture.X86) -> None:
        self.door = door
        self.docker = FakeDocker(door.inner, docker)
        self.executor = Executor(door, lambda *_: None, self.docker, source(), sleep=lambda _: None)

    def deploy(self, settings: DeploySettings) -> Plan:
        observed = observe(self.door, settings.name)
        make = plan_stack if settings.role is None else plan_direct
        return self.carry_out(make(settings, observed, source(), self.docker.architecture()))

    def destroy(self, *, delete_data: bool = False) -> Plan:
        return self.carry_out(plan_destroy(observe(self.door, "gradmux"), delete_data=delete_data))

    def carry_out(self, plan: Plan) -> Plan:
        """What went through the door is what the plan said, in that order; builds and emptying ask more besides."""
        self.door.passed.clear()
        self.executor.run(plan, "gradmux")
        through = iter([title for title, _ in self.door.passed])
        said = [step.title for step in plan.steps if isinstance(step, Call | Wait)]
        assert all(title in through for title in said), (said, self.door.passed)
        return plan

    def get(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        return self.door.inner.call(service, operation, arguments)

    @property
    def configuration(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("lambda", "get_function", FunctionName=NAMES.function)
        return found


@pytest.fixture
def deployer(door: RecordingDoor) -> Deployer:
    return Deployer(door)


def titles(plan: Plan) -> list[str]:
    return [step.title for step in plan.steps]


def test_a_first_deployment_makes_everything(deployer: Deployer) -> None:
    plan = deployer.deploy(PLAIN)
    # what went through the door is what the plan said, in that order
    through = [title for title, _ in deployer.door.passed if title != "ecr.get_authorization_token"]
    assert through == [title for title in titles(plan) if not title.startswith("docker")]
    found = deployer.configuration
    configuration = found["Configuration"]
    assert (configuration["MemorySize"], configuration["Timeout"]) == (2048, 60)
    assert configuration["Environment"]["Variables"] == {"GRADMUX_CACHE_BYTES": str(384 * 2**20)}
    assert found["Code"]["ImageUri"] == NAMES.image(source().tag) == deployer.docker.pushed[0][0]
    stack = observe(deployer.door, "gradmux").stack
    assert stack is not None
    assert stack.outputs["BucketName"] == NAMES.bucket


def test_the_bucket_is_encrypted(deployer: Deployer) -> None:
    deployer.deploy(PLAIN)
    encryption = deployer.get("s3", "get_bucket_encryption", Bucket=NAMES.bucket)
    (rule,) = encryption["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"


def test_the_workers_role_has_its_policy(deployer: Deployer) -> None:
    deployer.deploy(PLAIN)
    role = deployer.configuration["Configuration"]["Role"].rpartition("/")[2]
    policy = deployer.get("iam", "get_role_policy", RoleName=role, PolicyName="worker")["PolicyDocument"]
    assert f"arn:aws:s3:::{NAMES.bucket}/runs/*/results/*" in str(policy)
    group = deployer.get("logs", "describe_log_groups", logGroupNamePrefix=NAMES.log_group)["logGroups"][0]
    assert group["retentionInDays"] == 14


def test_deploying_twice_does_nothing_the_second_time(deployer: Deployer) -> None:
    deployer.deploy(PLAIN)
    assert deployer.deploy(PLAIN).steps == ()
    assert deployer.door.passed == []


def test_an_update_changes_the_function(deployer: Deployer) -> None:
    deployer.deploy(PLAIN)
    plan = deployer.deploy(replace(PLAIN, memory_mb=4096, timeout_s=300))
    assert titles(plan)[0] == "cloudformation.update_stack"
    configuration = deployer.configuration["Configuration"]
    assert (configuration["MemorySize"], configuration["Timeout"]) == (4096, 300)
    assert deployer.docker.built == [NAMES.image(source().tag)]


def test_without_docker_the_cloud_builds(door: RecordingDoor) -> None:
    make_build_project(door)
    deployer = Deployer(door, docker=None)
    plan = deployer.deploy(PLAIN)
    assert "codebuild.start_build" in titles(plan)
    key = f"builds/{source().tag}.zip"
    body = deployer.get("s3", "get_object", Bucket=NAMES.bucket, Key=key)["Body"].read()
    assert body == source().zipped()
    assert deployer.docker.built == []
    put_image(door.inner, NAMES.image(source().tag))  # moto's builds build nothing
    assert deployer.deploy(PLAIN).steps == ()


def make_build_project(door: RecordingDoor) -> None:
    """moto's CloudFormation does not make it."""
    project = {
        "name": NAMES.project,
        "source": {"type": "S3", "location": "bucket/builds/none.zip"},
        "artifacts": {"type": "NO_ARTIFACTS"},
        "environment": {"type": "LINUX_CONTAINER", "image": "image", "computeType": "BUILD_GENERAL1_SMALL"},
        "serviceRole": "arn:aws:iam::123456789012:role/service-role/build",
    }
    door.inner.call("codebuild", "create_project", project)


def test_destroy_keeps_the_data_and_deploy_finds_it_again(deployer: Deployer) -> None:
    deployer.deploy(PLAIN)
    put(deployer, "data/manifests/one.json")
    plan = deployer.destroy()
    left = observe(deployer.door, "gradmux")
    assert (left.stack, left.function, left.images, left.repository) == (None, None, frozenset(), False)
    assert left.own_bucket
    assert "--delete-data" in plan.leaves[0]
    deployer.deploy(PLAIN)
    again = observe(deployer.door, "gradmux").stack
    assert again is not None
    assert again.parameters["MakeBucket"] == "false"
    deployer.get("s3", "delete_bucket_policy", Bucket=NAMES.bucket)  # moto takes it for one that denies everything
    assert deployer.get("s3", "get_object", Bucket=NAMES.bucket, Key="data/manifests/one.json")["ContentLength"] == 4


def test_destroy_with_the_data_leaves_nothing(deployer: Deployer) -> None:
    deployer.deploy(PLAIN)
    versioning = {"Status": "Enabled"}
    deployer.get("s3", "put_bucket_versioning", Bucket=NAMES.bucket, VersioningConfiguration=versioning)
    for _ in range(2):
        put(deployer, "runs/one/results/a")
    deployer.get("s3", "delete_object", Bucket=NAMES.bucket, Key="runs/one/results/a")
    deployer.get("s3", "create_multipart_upload", Bucket=NAMES.bucket, Key="runs/one/results/b")
    plan = deployer.destroy(delete_data=True)
    assert plan.leaves == ()
    assert deployer.get("s3", "list_buckets")["Buckets"] == []
    assert deployer.get("iam", "list_roles")["Roles"] == []
    assert deployer.get("logs", "describe_log_groups")["logGroups"] == []
    assert deployer.destroy(delete_data=True).steps == ()


def put(deployer: Deployer, key: str) -> None:
    deployer.get("s3", "put_object", Bucket=NAMES.bucket, Key=key, Body=b"data")


def test_with_a_role_and_a_bucket_of_ones_own_no_stack_is_made(deployer: Deployer) -> None:
    role = deployer.get("iam", "create_role", RoleName="mine", AssumeRolePolicyDocument=ROLE_TRUST)["Role"]["Arn"]
    settings = replace(PLAIN, role=role, bucket="mine")
    deployer.deploy(settings)
    found = deployer.configuration
    assert (found["Configuration"]["Role"], found["Configuration"]["PackageType"]) == (role, "Image")
    assert found["Tags"]["gradmux"] == "gradmux"
    concurrency = deployer.get("lambda", "get_function_concurrency", FunctionName=NAMES.function)
    assert concurrency["ReservedConcurrentExecutions"] == 64
    events = deployer.get("lambda", "get_function_event_invoke_config", FunctionName=NAMES.function)
    assert events["MaximumRetryAttempts"] == 0
    assert observe(deployer.door, "gradmux").stack is None
    deployer.deploy(replace(settings, memory_mb=3008, reserved=None))
    assert deployer.configuration["Configuration"]["MemorySize"] == 3008
    assert "ReservedConcurrentExecutions" not in deployer.get(
        "lambda", "get_function_concurrency", FunctionName=NAMES.function
    )
    assert deployer.deploy(replace(settings, memory_mb=3008, reserved=None)).steps == ()
    plan = deployer.destroy()
    assert role in plan.leaves[0]
    assert observe(deployer.door, "gradmux").function is None


def test_two_deployments_live_side_by_side(deployer: Deployer) -> None:
    deployer.deploy(PLAIN)
    assert observe(deployer.door, "another").stack is None
    assert Names("another", find_account(deployer.door)).bucket == "another-123456789012-us-east-1"


def test_what_aws_refuses_tells_what_exists_and_how_to_go_on(deployer: Deployer) -> None:
    deployer.deploy(PLAIN)
    observed = observe(deployer.door, "gradmux")
    plan = plan_stack(replace(PLAIN, memory_mb=3008), observed, source(), Architecture.X86)
    deployer.carry_out(plan_destroy(observed, delete_data=True))
    with pytest.raises(StepFailed) as failed:
        deployer.carry_out(plan)  # made for what is not there any more
    first, *rest = str(failed.value).splitlines()
    assert first.startswith(f"step 1 of {len(plan.steps)} failed (cloudformation.update_stack)")
    assert rest[-2] == "exists now: nothing"
    assert "repeat the command to go on" in rest[-1]


def test_an_account_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    refused = BotoDoor(boto3.Session("testing", "testing", region_name="us-east-1"))
    with pytest.raises(AwsError, match="Could not connect") as error:
        observe(refused, "gradmux")
    assert len(str(error.value).splitlines()) == 1
    assert urllib.parse.urlsplit(refused.endpoint("sts")).port == 9
