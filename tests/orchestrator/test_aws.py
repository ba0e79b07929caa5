"""Endpoints, regions and credentials come from where AWS's own tools take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest

from gradmux.orchestrator.aws import find_credentials, new_session, resolve_endpoint
from gradmux.orchestrator.errors import PreflightError

pytestmark = pytest.mark.usefixtures("aws_environment")


@pytest.mark.parametrize(
    ("service", "url", "custom"),
    [
        ("lambda", "https://lambda.us-east-1.amazonaws.com", False),
        ("s3", "https://s3.amazonaws.com", False),
    ],
)
def test_aws_itself_when_nothing_else_is_said(service: str, url: str, custom: bool) -> None:
    endpoint = resolve_endpoint(new_session(), service)
    assert (endpoint.url, endpoint.region, endpoint.custom) == (url, "us-east-1", custom)


def test_a_services_own_variable_goes_before_the_general_one(aws_environment: pytest.MonkeyPatch) -> None:
    aws_environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9/")
    aws_environment.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:8")
    assert resolve_endpoint(new_session(), "lambda").url == "http://127.0.0.1:8"
    assert resolve_endpoint(new_session(), "s3").url == "http://127.0.0.1:9"
    assert resolve_endpoint(new_session(), "s3", "http://127.0.0.1:7").url == "http://127.0.0.1:7"
    assert resolve_endpoint(new_session(), "lambda").custom


class NotSent(Exception):
    """A request that a stock client was about to send."""


def sent_by_a_stock_client(service: str) -> tuple[str, str]:
    """(scheme and host that boto3 would send a request to, the region that it signs for)."""

    def stop(request: Any, **_: Any) -> None:
        raise NotSent(request)

    client: Any = boto3.Session(botocore_session=new_session()).client(service)  # type: ignore[call-overload]
    client.meta.events.register(f"before-send.{service}", stop)
    with pytest.raises(NotSent) as caught:
        client.invoke(FunctionName="worker") if service == "lambda" else client.get_object(Bucket="A_b", Key="k")
    (request,) = caught.value.args
    parts, signed = urlsplit(request.url), request.headers["Authorization"]
    scope = signed.decode() if isinstance(signed, bytes) else signed
    return f"{parts.scheme}://{parts.netloc}", scope.partition("Credential=")[2].split("/")[2]


@pytest.mark.parametrize("dual_stack", ["false", "true"])
@pytest.mark.parametrize("fips", ["false", "true"])
@pytest.mark.parametrize(
    "region",
    ["us-east-1", "eu-west-3", "cn-north-1", "us-gov-west-1", "us-iso-east-1", "eusc-de-east-1", "not-yet-known-1"],
)
@pytest.mark.parametrize("service", ["lambda", "s3"])
def test_every_partition_as_a_stock_client_has_it(
    service: str, region: str, fips: str, dual_stack: str, aws_environment: pytest.MonkeyPatch
) -> None:
    aws_environment.setenv("AWS_REGION", region)
    aws_environment.setenv("AWS_USE_FIPS_ENDPOINT", fips)
    aws_environment.setenv("AWS_USE_DUALSTACK_ENDPOINT", dual_stack)
    if (service, region, fips) == ("s3", "cn-north-1", "true"):
        with pytest.raises(PreflightError, match="s3 endpoint: Partition does not support FIPS"):
            resolve_endpoint(new_session(), service)
        return
    endpoint = resolve_endpoint(new_session(), service)
    assert (endpoint.url, endpoint.region) == sent_by_a_stock_client(service)


def test_an_endpoint_keeps_its_path() -> None:
    """Some compatible services lie under one."""
    assert resolve_endpoint(new_session(), "lambda", "http://127.0.0.1:8/lambda/").url == "http://127.0.0.1:8/lambda"


def test_aws_region_goes_before_the_default(aws_environment: pytest.MonkeyPatch) -> None:
    aws_environment.setenv("AWS_REGION", "eu-west-3")
    assert resolve_endpoint(new_session(), "lambda").url == "https://lambda.eu-west-3.amazonaws.com"
    aws_environment.delenv("AWS_REGION")
    assert resolve_endpoint(new_session(), "lambda").region == "us-east-1"


def test_lambda_needs_a_region_and_s3_does_not(aws_environment: pytest.MonkeyPatch) -> None:
    aws_environment.delenv("AWS_REGION")
    aws_environment.delenv("AWS_DEFAULT_REGION")
    assert resolve_endpoint(new_session(), "s3").region == "us-east-1"
    with pytest.raises(PreflightError, match="no AWS region: set AWS_REGION"):
        resolve_endpoint(new_session(), "lambda")


def test_profiles_give_region_endpoint_and_credentials(aws_environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile lab]\nregion = eu-central-1\naws_access_key_id = LAB\naws_secret_access_key = s\n"
        "endpoint_url = http://127.0.0.1:6\n"
    )
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION", "DEFAULT_REGION"):
        aws_environment.delenv(f"AWS_{name}")
    aws_environment.setenv("AWS_CONFIG_FILE", str(config))
    session = new_session("lab")
    assert find_credentials(session).access_key == "LAB"
    endpoint = resolve_endpoint(session, "lambda")
    assert (endpoint.url, endpoint.region) == ("http://127.0.0.1:6", "eu-central-1")


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(PreflightError, match="nobody"):
        new_session("nobody")


def test_a_bad_endpoint_is_a_preflight_error() -> None:
    with pytest.raises(PreflightError, match="lambda endpoint"):
        resolve_endpoint(new_session(), "lambda", "not a url")
