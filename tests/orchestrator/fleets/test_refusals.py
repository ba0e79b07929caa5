"""What each error of Lambda's Invoke API means, held against the API's own description in botocore."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest

from gradmux.orchestrator.fleets.refusals import EXPIRED, HEALING, LASTING, Verdict, verdict_on


@pytest.fixture(scope="module")
def declared() -> dict[str, int]:
    """AWS's name of an error that Invoke may give -> HTTP status."""
    model: Any = botocore.session.Session().get_service_model("lambda")
    return {
        shape.name: shape.metadata["error"]["httpStatusCode"] for shape in model.operation_model("Invoke").error_shapes
    }


def test_errors_that_last_are_those_of_key_network_and_code(declared: dict[str, int]) -> None:
    refused = {
        name for name, status in declared.items() if status >= 500 and verdict_on(status, name) is Verdict.REFUSED
    }
    assert refused == set(LASTING)
    assert refused == {
        *("KMSAccessDeniedException", "KMSDisabledException", "KMSInvalidStateException", "KMSNotFoundException"),
        *("EC2AccessDeniedException", "InvalidSubnetIDException", "InvalidSecurityGroupIDException"),
        *("InvalidRuntimeException", "InvalidZipFileException"),
    }


def test_errors_that_pass_are_known_to_aws_and_below_500(declared: dict[str, int]) -> None:
    assert {declared[name] for name in HEALING if name in declared} == {408, 409}
    assert not HEALING & LASTING.keys()
    for name in HEALING:
        assert verdict_on(declared.get(name, 409), name) is Verdict.UNAVAILABLE


@pytest.mark.parametrize(
    ("status", "name", "verdict"),
    [
        (429, "TooManyRequestsException", Verdict.THROTTLED),
        (500, "ServiceException", Verdict.UNAVAILABLE),
        (502, "EC2UnexpectedException", Verdict.UNAVAILABLE),
        (502, "a name that is not known yet", Verdict.UNAVAILABLE),
        (403, "EFSMountFailureException", Verdict.REFUSED),
        (410, "EFSIOException", Verdict.REFUSED),
        (409, "RuntimeVersionDeletedException", Verdict.REFUSED),
        (402, "ServiceQuotaExceededException", Verdict.REFUSED),
        *((403, name, Verdict.EXPIRED) for name in EXPIRED),
    ],
)
def test_others(status: int, name: str, verdict: Verdict) -> None:
    assert verdict_on(status, name) is verdict
