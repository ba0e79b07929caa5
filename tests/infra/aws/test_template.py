"""The template: clean to cfn-lint, no wider than it must be, and of one mind with names, settings and the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gradmux.infra.aws.settings import LOG_DAYS, DeploySettings
from gradmux.infra.aws.template import FILE, parameters, policies, template, template_text
from gradmux.lambda_worker.contract import ReplyMode, Request, early_key, reply_key, result_key
from gradmux.orchestrator.store import Keys
from tests.infra.aws.fakes import NAMES

REGIONS = ("us-east-1", "eu-central-1", "ap-southeast-2")
WITHOUT_RESOURCES = frozenset({"ecr:GetAuthorizationToken", "lambda:GetAccountSettings"})
"""Actions that IAM knows for all resources only."""
LARGEST_TEMPLATE_BYTES = 51_200
"""CloudFormation's limit for a template sent with the call."""


def test_cfn_lint_finds_nothing() -> None:
    api = pytest.importorskip("cfnlint.api")
    config = pytest.importorskip("cfnlint.config")
    found = api.lint_file(FILE, config=config.ManualArgs(regions=list(REGIONS)))
    assert [str(each) for each in found] == []


def test_cloudformation_takes_it_as_text() -> None:
    assert len(template_text().encode()) <= LARGEST_TEMPLATE_BYTES


def statements(value: Any) -> Iterator[dict[str, Any]]:
    """Every statement of every policy in the template."""
    if isinstance(value, dict):
        if "Effect" in value:
            yield value
        for item in value.values():
            yield from statements(item)
    elif isinstance(value, list):
        for item in value:
            yield from statements(item)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def allowed() -> list[dict[str, Any]]:
    return [each for each in statements(template()["Resources"]) if each["Effect"] == "Allow"]


def test_no_policy_has_a_star_where_a_name_is_known() -> None:
    assert len(allowed()) > 10
    for statement in allowed():
        actions = as_list(statement["Action"])
        assert not any("*" in action for action in actions), statement
        assert "*" not in str(statement.get("Principal", "")), statement
        for resource in as_list(statement.get("Resource", [])):
            if resource == "*":
                assert set(actions) <= WITHOUT_RESOURCES, statement
                continue
            text = resource.get("Fn::Sub", "")
            assert set(resource) in ({"Fn::Sub"}, {"Ref"}, {"Fn::GetAtt"}), statement
            # a star stands for objects below a known prefix, for a run's name, or for log streams of a known group
            assert text.replace("/runs/*/", "/").rstrip("*").count("*") == 0, statement
            assert not text.endswith("*") or text.endswith(
                ("/specs/*", "/data/*", "/runs/*", "/builds/*", "weights/*", "results/*", "-worker:*", "-image:*")
            )


def test_what_is_open_to_everybody_is_only_a_prohibition() -> None:
    denied = [each for each in statements(template()["Resources"]) if each["Effect"] == "Deny"]
    assert [each["Condition"] for each in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]


def matches(pattern: str, key: str) -> bool:
    """As IAM does it."""
    from fnmatch import fnmatchcase

    return fnmatchcase(f"arn:aws:s3:::bucket/{key}", pattern)


def resources_of(policy: str, action: str) -> list[str]:
    document = policies(NAMES, "bucket")[policy]
    granted = [each for each in document["Statement"] if action in as_list(each["Action"])]
    return [resource for each in granted for resource in as_list(each["Resource"])]


def keys_read() -> list[str]:
    keys = Keys("run-1")
    return [
        keys.cancel,
        keys.weights(0, 1, 2, b"w"),
        Keys.model_spec(b""),
        f"{Keys.DATA_SHARDS}{'0' * 64}",
        Keys.data_manifest(b""),
        keys.spill(3, 4) + "0-3-4-1/0",
    ]


def keys_written() -> list[str]:
    keys = Keys("run-1")
    request = Request("gradient", "run-1", 0, 3, 4, "bucket", reply=ReplyMode(prefix=keys.spill(3, 4)))
    return [result_key(request, 0), early_key(request, 0), reply_key(request), keys.reduced(0, 5, 1, 1)]


def test_a_worker_may_read_and_write_what_it_has_to_and_no_more() -> None:
    readable, writable = resources_of("worker", "s3:GetObject"), resources_of("worker", "s3:PutObject")
    for key in keys_read() + keys_written():
        assert any(matches(pattern, key) for pattern in readable), key
    for key in keys_written():
        assert any(matches(pattern, key) for pattern in writable), key
    for key in [*keys_read()[:-1], Keys("run-1").checkpoint("last"), "builds/source.zip", "elsewhere"]:
        assert not any(matches(pattern, key) for pattern in writable), key
    run = Keys("run-1")
    for key in ("builds/source.zip", run.checkpoint("last"), run.folder("job.json"), run.folder("materials/code.json")):
        assert not any(matches(pattern, key) for pattern in readable), key


def test_a_missing_object_is_told_from_a_forbidden_one() -> None:
    assert resources_of("worker", "s3:ListBucket") == ["arn:aws:s3:::bucket"]


def test_a_client_may_keep_runs_and_call_its_own_function() -> None:
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
        granted = resources_of("client", action)
        for key in [*keys_read(), *keys_written(), Keys("run-1").checkpoint("last")]:
            assert any(matches(pattern, key) for pattern in granted), key
    assert resources_of("client", "lambda:InvokeFunction") == [NAMES.function_arn]


def test_policies_for_people_name_everything() -> None:
    documents = policies(NAMES, "bucket")
    assert set(documents) == {"worker_trust", "worker", "client"}
    assert not any(word in str(documents) for word in ("Fn::", "Ref", "${"))


def test_names_are_those_of_the_template() -> None:
    resources = template()["Resources"]

    def name(resource: str, field: str) -> str:
        value = resources[resource]["Properties"][field]
        text: str = value.get("Fn::Sub", "")
        return text.replace("${AWS::StackName}", NAMES.stack)

    assert name("Function", "FunctionName") == NAMES.function
    assert name("Repository", "RepositoryName") == NAMES.repository
    assert name("ImageBuild", "Name") == NAMES.project
    assert name("LogGroup", "LogGroupName") == NAMES.log_group


def test_settings_fill_all_parameters_within_their_limits() -> None:
    values = parameters(DeploySettings(), image="i", bucket="b", make_bucket=True, python="3.12", torch="2")
    declared = template()["Parameters"]
    assert set(values) == set(declared)
    assert declared["LogDays"]["AllowedValues"] == list(LOG_DAYS)
    for name, lowest, highest in (("MemoryMb", 512, 10_240), ("TimeoutS", 1, 900), ("TmpMb", 512, 10_240)):
        assert (declared[name]["MinValue"], declared[name]["MaxValue"]) == (lowest, highest)
    for name, value in values.items():
        allowed_values = declared[name].get("AllowedValues")
        assert allowed_values is None or value in map(str, allowed_values)


def test_asynchronous_calls_are_never_repeated_by_lambda() -> None:
    assert template()["Resources"]["AsynchronousCalls"]["Properties"]["MaximumRetryAttempts"] == 0


def test_data_outlives_the_stack_and_logs_do_not() -> None:
    kept = {name for name, each in template()["Resources"].items() if each.get("DeletionPolicy") == "Retain"}
    assert kept == {"Bucket", "BucketPolicy"}


def test_the_bucket_is_private_and_forgets_runs_and_builds() -> None:
    bucket = template()["Resources"]["Bucket"]["Properties"]
    blocked = bucket["PublicAccessBlockConfiguration"]
    assert len(blocked) == 4
    assert all(blocked.values())
    _, builds, (condition, runs, otherwise) = (
        rule.get("Fn::If", rule) for rule in bucket["LifecycleConfiguration"]["Rules"]
    )
    assert (builds["Prefix"], builds["ExpirationInDays"]) == ("builds/", 7)
    assert condition == "Forgets"
    assert (runs["Prefix"], runs["ExpirationInDays"]) == (Keys("r").prefix.removesuffix("r/"), {"Ref": "KeepDays"})
    assert otherwise == {"Ref": "AWS::NoValue"}
