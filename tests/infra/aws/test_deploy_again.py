"""Deploying again: what is deployed stays unless it is asked otherwise, whatever state stack and bucket are in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import boto3
import pytest

from gradmux.infra.aws.bucket_plan import configuring
from gradmux.infra.aws.bucket_state import BucketState, find_bucket
from gradmux.infra.aws.door import BotoDoor
from gradmux.infra.aws.errors import ApiError, AwsError, SettingsError
from gradmux.infra.aws.execute import Executor
from gradmux.infra.aws.image import image_source
from gradmux.infra.aws.names import Names
from gradmux.infra.aws.observe import Observed, Stack, find_account, observe
from gradmux.infra.aws.plan import Plan
from gradmux.infra.aws.settings import TORCH_VERSION, Architecture, DeploySettings, packed, unpacked
from gradmux.infra.aws.stack_plan import FAILED, plan_stack
from gradmux.infra.aws.template import policies
from gradmux.infra.aws.troubles import hint
from gradmux.infra.aws.wishes import Wishes
from tests.infra.aws.fakes import NAMES, RecordingDoor, ScriptedDoor, source
from tests.infra.aws.test_deploy import Deployer, deployer  # noqa: F401  (a fixture)
from tests.infra.aws.test_plans import NOTHING, PLAIN, deployed, stack
from tests.orchestrator.standin import page, standing_in

KEY = "arn:aws:kms:us-east-1:123456789012:key/12345678-1234-1234-1234-123456789012"
ODD = DeploySettings(
    architecture=Architecture.ARM, memory_mb=4096, timeout_s=300, tmp_mb=2048, reserved=5, log_days=30, keep_days=0,
    requirements="transformers==5.0\n", kms_key=KEY,
)  # fmt: skip
HAS_ODD = deployed(stack=stack(ODD), images=frozenset({source(Architecture.ARM).tag}))


def settled(observed: Observed, **asked: Any) -> DeploySettings:
    return Wishes(**asked).settled(observed)


def plan(observed: Observed, **asked: Any) -> Plan:
    wanted = settled(observed, **asked)
    return plan_stack(wanted, observed, source(wanted.architecture), None)


# --- what is not asked for stays ---------------------------------------------------------------------------------


def test_an_option_that_is_not_given_changes_nothing() -> None:
    assert settled(HAS_ODD) == ODD
    assert plan(HAS_ODD).steps == ()
    assert plan(HAS_ODD).changes == ()


@pytest.mark.parametrize(
    ("asked", "field", "value"),
    [
        ({"timeout_s": 100}, "timeout_s", 100),
        ({"memory_mb": 1024}, "memory_mb", 1024),
        ({"tmp_mb": 512}, "tmp_mb", 512),
        ({"reserved": 7}, "reserved", 7),
        ({"reserved": 0}, "reserved", None),
        ({"log_days": 7}, "log_days", 7),
        ({"keep_days": 30}, "keep_days", 30),
        ({"architecture": Architecture.X86}, "architecture", Architecture.X86),
        ({"requirements": ""}, "requirements", ""),
        ({"image": "mine:1"}, "image", "mine:1"),
    ],
)
def test_one_option_changes_one_setting(asked: dict[str, Any], field: str, value: Any) -> None:
    wanted = settled(HAS_ODD, **asked)
    assert wanted == replace(ODD, **{field: value})
    (change,) = plan(HAS_ODD, **asked).changes
    assert change.name == field.removesuffix("_mb").removesuffix("_s").replace("_", "-")


def test_an_empty_account_gets_the_defaults() -> None:
    assert settled(NOTHING) == PLAIN
    assert plan(NOTHING).changes == ()


def test_a_finished_image_stays_until_another_is_asked_for() -> None:
    brought = deployed(stack=stack(ImageUri="registry/mine:1"))
    assert settled(brought, memory_mb=4096).image == "registry/mine:1"
    assert settled(brought, image="").image is None
    assert settled(brought, requirements="x").image is None
    assert settled(deployed()).image is None, "one of ours follows from its source"


def test_what_deletes_or_shrinks_is_told_as_that() -> None:
    losses = {change.name: change.loss for change in plan(HAS_ODD, keep_days=90, log_days=7, memory_mb=512).losses}
    assert losses.keys() == {"keep-days", "log-days", "memory"}
    assert "older than 90 days, for good" in losses["keep-days"]
    assert not plan(HAS_ODD, memory_mb=8192, reserved=0, timeout_s=900).losses
    assert plan(deployed(), keep_days=30).losses
    assert not plan(deployed(), keep_days=0).losses
    assert plan(HAS_ODD, keep_days=90).changes[0].told().startswith("keep-days: for ever -> 90 days (S3 deletes")


def test_a_function_made_without_a_stack_keeps_its_settings_too(deployer: Deployer) -> None:  # noqa: F811
    role = deployer.get("iam", "create_role", RoleName="mine", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    first = replace(ODD, role=role, bucket="mine", kms_key="", architecture=Architecture.X86, log_days=14, keep_days=90)
    deployer.deploy(first)
    observed = observe(deployer.door, "gradmux")
    assert settled(observed, timeout_s=60) == replace(first, timeout_s=60, keep_days=90)


@pytest.mark.parametrize("text", ["", "a\n", "transformers==5.0\n# ünï\n" * 50])
def test_requirements_are_kept_whole(text: str) -> None:
    assert unpacked(packed(text)) == text


def test_deploying_again_through_the_account(deployer: Deployer) -> None:  # noqa: F811
    """`deploy --memory 4096 --keep-days 0 --reserved 5`, then `deploy --timeout 300`."""
    deployer.deploy(replace(PLAIN, memory_mb=4096, keep_days=0, reserved=5))
    observed = observe(deployer.door, "gradmux")
    deployer.deploy(settled(observed, timeout_s=300))
    again = observe(deployer.door, "gradmux").stack
    assert again is not None
    assert {name: again.parameters[name] for name in ("MemoryMb", "KeepDays", "Reserved", "TimeoutS")} == {
        "MemoryMb": "4096",
        "KeepDays": "0",
        "Reserved": "5",
        "TimeoutS": "300",
    }


# --- every state of a stack --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status",
    ["CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE", "IMPORT_ROLLBACK_COMPLETE"],
)
def test_a_stack_that_can_be_updated_is(status: str) -> None:
    observed = deployed(stack=stack(status=status))
    assert plan(observed).steps == ()
    assert plan(observed, memory_mb=4096).steps[0].title == "cloudformation.update_stack"


@pytest.mark.parametrize("status", ["UPDATE_FAILED", "UPDATE_ROLLBACK_FAILED"])
def test_one_whose_update_failed_is_updated_in_any_case(status: str) -> None:
    assert "cloudformation.update_stack" in [step.title for step in plan(deployed(stack=stack(status=status))).steps]


@pytest.mark.parametrize("status", sorted(FAILED))
def test_one_that_was_never_finished_is_made_anew(status: str) -> None:
    titles = [step.title for step in plan(deployed(stack=stack(status=status)), image="mine:1").steps]
    assert titles[0] == "cloudformation.delete_stack"
    assert "cloudformation.create_stack" in titles


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        ("UPDATE_IN_PROGRESS", "cancel-update-stack"),
        ("DELETE_IN_PROGRESS", "then repeat"),
        ("IMPORT_ROLLBACK_FAILED", "another --name"),
    ],
)
def test_one_that_cannot_be_changed_now_says_how_to_go_on(status: str, advice: str) -> None:
    with pytest.raises(AwsError, match=advice):
        plan(deployed(stack=stack(status=status)))


@pytest.mark.parametrize("status", ["CREATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"])
def test_nothing_to_update_is_not_waited_for(status: str) -> None:
    """The waiter would wait for half an hour, or fail: no update is under way."""
    told = ApiError("cloudformation.update_stack", "ValidationError", "No updates are to be performed.")
    door = ScriptedDoor({"cloudformation.update_stack": told, "wait lambda.function_active_v2": {}})
    due = plan(deployed(stack=replace(stack(status=status), current=False)))
    Executor(door, lambda *_: None).run(due, "gradmux")
    assert door.titles == ["cloudformation.update_stack", "wait lambda.function_active_v2"]


# --- buckets that no stack makes ---------------------------------------------------------------------------------

BARE = BucketState(NAMES.bucket, rules=(), policy={}, closed=False, key="")


def titles(observed: Observed, **asked: Any) -> list[str]:
    return [step.title for step in plan(observed, **asked).steps if step.title.startswith("s3.")]


def test_a_bucket_left_by_a_creation_that_failed_is_set_up() -> None:
    left = replace(NOTHING, own_bucket=True, bucket=BARE)
    assert titles(left, image="mine:1") == [
        "s3.put_bucket_lifecycle_configuration",
        "s3.put_public_access_block",
        "s3.put_bucket_policy",
    ]


def test_one_that_was_kept_is_set_up_as_it_was(deployer: Deployer) -> None:  # noqa: F811
    """Kept for ever before `destroy`, its runs are after it; then S3 is asked nothing more."""
    deployer.deploy(replace(PLAIN, keep_days=0))
    deployer.get("s3", "put_object", Bucket=NAMES.bucket, Key="runs/old/folder/record", Body=b"")
    deployer.destroy()
    observed = observe(deployer.door, "gradmux", None)
    assert observed.bucket is not None
    wanted = settled(observed)
    assert wanted.keep_days == 0
    deployer.carry_out(plan_stack(wanted, observed, source(), Architecture.X86))
    again = observe(deployer.door, "gradmux")
    assert again.bucket is not None
    assert configuring(wanted, NAMES, again.bucket) == []
    assert (again.bucket.closed, "aws:SecureTransport" in json.dumps(again.bucket.policy)) == (True, True)
    changed = settled(again, keep_days=30)
    deployer.carry_out(Plan(tuple(configuring(changed, NAMES, again.bucket))))  # moto cannot update such a stack
    told = deployer.get("s3", "get_bucket_lifecycle_configuration", Bucket=NAMES.bucket)["Rules"]
    assert {rule["ID"]: rule.get("Expiration", {}).get("Days") for rule in told} == {
        "forget-unfinished-uploads": None,
        "forget-builds": 7,
        "forget-runs": 30,
    }
    assert settled(observe(deployer.door, "gradmux"), timeout_s=300).keep_days == 30


def test_rules_and_statements_of_others_stay() -> None:
    theirs = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "x/"}, "Expiration": {"Days": 1}}
    statement = {"Sid": "Theirs", "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*"}
    state = replace(BARE, rules=(theirs,), policy={"Version": "2012-10-17", "Statement": [statement]}, closed=True)
    lifecycle, policy = configuring(PLAIN, NAMES, state)
    assert theirs in lifecycle.arguments["LifecycleConfiguration"]["Rules"]  # type: ignore[union-attr]
    told = json.loads(policy.arguments["Policy"])["Statement"]  # type: ignore[union-attr]
    assert [each["Sid"] for each in told] == ["Theirs", "OnlyEncryptedConnections"]


def test_in_the_users_own_bucket_nothing_is_deleted_unless_that_is_asked_for() -> None:
    mine = replace(NOTHING, bucket=replace(BARE, name="mine"))
    assert settled(mine, bucket="mine").keep_days == 0
    assert titles(mine, bucket="mine", image="x:1") == []
    (note, tls) = plan(mine, bucket="mine", image="x:1").notes
    assert "kept for ever" in note
    assert "unencrypted" in tls
    assert titles(mine, bucket="mine", image="x:1", keep_days=9) == ["s3.put_bucket_lifecycle_configuration"]
    assert plan(mine, bucket="mine", image="x:1", keep_days=9).losses


def test_its_key_is_found_and_allowed() -> None:
    mine = replace(NOTHING, bucket=replace(BARE, name="mine", key=KEY))
    assert settled(mine, bucket="mine").kms_key == KEY
    values = plan(mine, bucket="mine", image="x:1").to_json()["steps"][0]["arguments"]["Parameters"]
    assert {"ParameterKey": "KmsKey", "ParameterValue": KEY.split(":", 4)[4]} in values


@pytest.mark.parametrize("who", ["worker", "client"])
def test_the_policies_name_the_key(who: str) -> None:
    granted = json.dumps(policies(NAMES, "b", KEY)[who])
    assert KEY in granted
    assert "kms" not in json.dumps(policies(NAMES, "b")[who])


def test_a_client_may_read_the_functions_log() -> None:
    assert "logs:FilterLogEvents" in json.dumps(policies(NAMES, "b")["client"])


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", ""),
        ("alias/aws/s3", ""),
        (KEY, KEY),
        (KEY.rpartition("/")[2], KEY),
        ("alias/mine", KEY),
    ],
)
def test_how_s3_names_a_key(key: str, expected: str) -> None:
    default = {"SSEAlgorithm": "aws:kms", **({"KMSMasterKeyID": key} if key else {})}
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": default}]}
    unset = {name: ApiError(name, code, "") for name, code in (("l", "NoSuchLifecycleConfiguration"),)}
    door = ScriptedDoor(
        {
            "s3.head_bucket": {},
            "s3.get_bucket_lifecycle_configuration": unset["l"],
            "s3.list_objects_v2": {"KeyCount": 1},
            "s3.get_bucket_policy": ApiError("p", "NoSuchBucketPolicy", ""),
            "s3.get_public_access_block": ApiError("a", "AccessDenied", ""),
            "s3.get_bucket_encryption": {"ServerSideEncryptionConfiguration": rules},
            "kms.describe_key": {"KeyMetadata": {"Arn": KEY}},
        }
    )
    state = find_bucket(door, "b", "aws", "123456789012")
    assert state == BucketState("b", rules=(), policy={}, closed=None, runs=True, key=expected)


# --- planning needs only the right to read -----------------------------------------------------------------------

READING = ("get_", "list_", "describe_", "head_")


def test_planning_only_reads(door: RecordingDoor) -> None:
    observe(door, "gradmux", "mine")
    assert all(title.partition(".")[2].startswith(READING) for title, _ in door.passed)


def test_what_one_may_not_see_is_planned_without() -> None:
    denied = ApiError("x", "AccessDeniedException", "not authorized")
    door = ScriptedDoor(
        {
            "sts.get_caller_identity": {"Arn": "arn:aws:iam::123456789012:user/u"},
            "cloudformation.describe_stacks": {
                "Stacks": [{"StackStatus": "CREATE_COMPLETE", "Parameters": [], "Outputs": []}]
            },
            **dict.fromkeys(
                ("cloudformation.get_template", "ecr.list_images", "lambda.get_function_concurrency", "s3.head_bucket"),
                denied,
            ),
            "lambda.get_function_event_invoke_config": denied,
            "lambda.get_function": {"Configuration": {}},
        }
    )
    observed = observe(door, "gradmux")
    assert observed.stack is not None
    assert not observed.stack.current
    assert (observed.repository, observed.own_bucket) == (False, False)


# --- requirements and new accounts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    ["torch==2.5.0", "torch == 2.9.1+cu128", "Torch @ https://x/torch.whl", "torch==2.5.0 ; python_version > '3'"],
)
def test_another_torch_is_refused_before_anything_is_built(line: str) -> None:
    with pytest.raises(SettingsError, match="leave it out"):
        DeploySettings(requirements=f"numpy\n{line}\n")


@pytest.mark.parametrize("line", ["torch", "torch>=2.5", f"torch=={TORCH_VERSION}", "torchvision", "# torch==1.0", ""])
def test_other_lines_are_pips_affair(line: str) -> None:
    DeploySettings(requirements=line)


def test_the_image_keeps_its_torch_or_is_not_built() -> None:
    made = image_source(Architecture.X86, "torchvision\n", "3.12")
    assert made.torch == TORCH_VERSION
    text = made.files["Dockerfile"].decode()
    assert text.index("pip list --format=freeze") < text.index(
        "--constraint /tmp/installed.txt --requirement extra.txt"
    )
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in text
    assert f"== '{TORCH_VERSION}' and not torch.version.cuda" in text


def test_of_a_finished_image_no_versions_are_claimed() -> None:
    values = plan(NOTHING, image="x:1").to_json()["steps"][0]["arguments"]["Parameters"]
    told = {each["ParameterKey"]: each["ParameterValue"] for each in values}
    assert (told["Python"], told["Torch"]) == ("", "")


def test_the_memory_limit_of_new_accounts_is_explained() -> None:
    refused = (
        "'MemorySize' value failed to satisfy constraint: Member must have value less than or equal to 3008 "
        "(Service: Lambda, Status Code: 400)"
    )
    assert "--memory 3008" in hint(refused)


# --- what is not AWS ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 403, 500])
def test_a_web_page_is_one_line(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with standing_in(lambda asked: page(status)) as url:
        services = ("cloudformation", "codebuild", "ecr", "iam", "lambda", "logs", "s3", "sts", "kms")
        door = BotoDoor(boto3.Session("testing", "testing", region_name="us-east-1"), dict.fromkeys(services, url))
        asks: list[Any] = [
            lambda: find_account(door),
            lambda: door.call("ecr", "list_images", {"repositoryName": "repository"}),
            lambda: door.call("lambda", "get_function", {"FunctionName": "f"}),
            lambda: door.call("s3", "list_objects_v2", {"Bucket": "bucket"}),
            lambda: door.wait("cloudformation", "stack_create_complete", {"StackName": "s"}, 0.0),
            lambda: door.wait("lambda", "function_active_v2", {"FunctionName": "f"}, 0.0),
        ]
        for ask in asks:
            with pytest.raises(AwsError) as caught:
                ask()
            assert "\n" not in str(caught.value)
            assert "<" not in str(caught.value)
            assert "a web page" in str(caught.value)


def test_names_know_their_account() -> None:
    assert Names("gradmux", NAMES.account).bucket == NAMES.bucket
    assert isinstance(stack(), Stack)
