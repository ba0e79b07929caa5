"""Endpoints, regions and credentials come from where AWS's own tools take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.aws import find_credentials, new_session, resolve_endpoint
from orchestrator.errors import PreflightError

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
