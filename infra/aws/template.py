"""The CloudFormation template as text and as data, and the policies in it with their names filled in.

The policies that users are shown are those of the template, so they cannot drift apart. Read `template.yaml` first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from gradmux.infra.aws.names import Names
from gradmux.infra.aws.settings import DeploySettings, packed
from gradmux.lambda_worker.contract import PROTOCOL

FILE = Path(__file__).with_name("template.yaml")
KEY_SID = "UseTheBucketsKey"
NO_KEY = "000000000000:key/none"
VARIABLE = re.compile(r"\$\{([\w:.]+)\}")


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    """!Sub x -> {"Fn::Sub": x}."""
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    value: Any = loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else None
    return {name: value.split(".") if name == "Fn::GetAtt" else value}


_Loader.add_multi_constructor("!", _short_form)


@lru_cache(maxsize=1)
def template_text() -> str:
    """What CloudFormation gets."""
    return FILE.read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def template() -> Mapping[str, Any]:
    """The template with intrinsic functions in their long form."""
    loader = _Loader(template_text())
    try:
        document: dict[str, Any] = loader.get_single_data()
    finally:
        loader.dispose()
    return document


def parameters(
    settings: DeploySettings, *, image: str, bucket: str, make_bucket: bool, python: str, torch: str
) -> dict[str, str]:
    """Values of all the template's parameters, as CloudFormation keeps them."""
    return {
        "ImageUri": image,
        "Architecture": settings.architecture.value,
        "MemoryMb": str(settings.memory_mb),
        "TimeoutS": str(settings.timeout_s),
        "TmpMb": str(settings.tmp_mb),
        "CacheBytes": str(settings.cache_bytes),
        "Reserved": "" if settings.reserved is None else str(settings.reserved),
        "LogDays": str(settings.log_days),
        "KeepDays": str(settings.keep_days),
        "BucketName": bucket,
        "MakeBucket": "true" if make_bucket else "false",
        "Protocol": str(PROTOCOL),
        "Python": python,
        "Torch": torch,
        "Requirements": packed(settings.requirements),
        "KmsKey": key_parameter(settings.kms_key),
    }


def key_parameter(arn: str) -> str:
    """The template's name of a KMS key."""
    return arn.split(":", 4)[-1] if arn else NO_KEY


def key_arn(parameter: str, names: Names) -> str:
    """The key's ARN again; empty for none."""
    account = names.account
    return "" if parameter in ("", NO_KEY) else f"arn:{account.partition}:kms:{account.region}:{parameter}"


def policies(names: Names, bucket: str, key: str = "") -> dict[str, Any]:
    """The documents that an administrator grants by hand: who may be the worker, what it may do, and a client.

    `key`: ARN of the KMS key that encrypts the bucket, if one does.
    """
    resources = template()["Resources"]
    role = resources["WorkerRole"]["Properties"]
    documents = {
        "worker_trust": role["AssumeRolePolicyDocument"],
        "worker": role["Policies"][0]["PolicyDocument"],
        "client": resources["ClientPolicy"]["Properties"]["PolicyDocument"],
    }
    values = {**_values(names, bucket), "KmsKey": key_parameter(key)}
    return {name: _with_key(_filled(document, values), key) for name, document in documents.items()}


def _with_key(document: dict[str, Any], key: str) -> dict[str, Any]:
    """Without the statement about a key where there is none."""
    kept = [each for each in document["Statement"] if key or each.get("Sid") != KEY_SID]
    return {**document, "Statement": kept}


def resource(name: str, names: Names) -> dict[str, Any]:
    """The properties of one of the template's resources, for the deployment's own bucket; other conditions stay."""
    filled: dict[str, Any] = _filled(
        template()["Resources"][name]["Properties"], _values(names, names.bucket), whole=False
    )
    return filled


def repository_policy(names: Names) -> dict[str, Any]:
    """Who may read the worker's image: Lambda, for this function."""
    document: dict[str, Any] = template()["Resources"]["Repository"]["Properties"]["RepositoryPolicyText"]
    filled: dict[str, Any] = _filled(document, _values(names, names.bucket))
    return filled


def _values(names: Names, bucket: str) -> dict[str, str]:
    """What the template's variables stand for."""
    return {
        "AWS::StackName": names.stack,
        "AWS::StackId": names.stack_arn(),
        "AWS::AccountId": names.account.id,
        "AWS::Region": names.account.region,
        "AWS::Partition": names.account.partition,
        "BucketName": bucket,
    }


def _filled(value: Any, values: Mapping[str, str], *, whole: bool = True) -> Any:
    """The value with Ref and Fn::Sub replaced by what they stand for; `whole`: they must all be known."""
    if isinstance(value, list):
        return [_filled(item, values, whole=whole) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"Ref"}:
        return values[value["Ref"]] if whole or value["Ref"] in values else value
    if set(value) == {"Fn::Sub"}:
        return VARIABLE.sub(lambda found: values.get(found[1], found[0]), value["Fn::Sub"])
    return {name: _filled(item, values, whole=whole) for name, item in value.items()}
