"""The doctor's findings, each from an answer of AWS's that leads to it."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest
from aiohttp import web

from gradmux.infra.aws.doctor import Finding, Level, Needs, examine_account, exit_code, handshake
from gradmux.infra.aws.door import BotoDoor
from gradmux.infra.aws.errors import ApiError, AwsError
from gradmux.lambda_worker.contract import Reply, Request, Result, Timing, encode_result, parse_request, reply_json
from gradmux.orchestrator.findings import failure, warning, well
from gradmux.orchestrator.training.memory import memory_mb
from tests.infra.aws.fakes import Answer, ScriptedDoor
from tests.orchestrator.fleets.fake_lambda import FakeLambda, Posted, refuse

NOON = "Sun, 29 Nov 2026 12:00:00 GMT"
NOON_S = 1_795_953_600.0
NEEDS = Needs("gradmux-worker", "bucket", workers=64, concurrency=256, timeout_s=60.0, python="3.12")
CONFIGURATION = {
    "State": "Active",
    "LastUpdateStatus": "Successful",
    "MemorySize": 2048,
    "Timeout": 60,
    "Architectures": ["x86_64"],
}
TAGS = {"gradmux:python": "3.12", "gradmux:protocol": "3", "gradmux:torch": "2.13.0"}
REPORT = (
    "START\nREPORT RequestId: 1\tDuration: 3.00 ms\tBilled Duration: 4 ms\tMemory Size: 2048 MB\t"
    "Max Memory Used: 251 MB\tInit Duration: {init} ms\n"
)


def limits(whole: int = 1000, free: int | None = None) -> dict[str, Any]:
    free = whole if free is None else free
    return {"AccountLimit": {"ConcurrentExecutions": whole, "UnreservedConcurrentExecutions": free}}


def invoked(body: bytes, error: bool = False, log: str = "") -> dict[str, Any]:
    answer: dict[str, Any] = {"Payload": io.BytesIO(body), "LogResult": base64.b64encode(log.encode()).decode()}
    return answer | ({"FunctionError": "Unhandled"} if error else {})


def failed(kind: str, message: str) -> dict[str, Any]:
    return invoked(json.dumps({"errorType": kind, "errorMessage": message}).encode(), error=True)


def replied(op: str = "warm", *results: Result, log: str = "") -> dict[str, Any]:
    reply = Reply(op, "doctor", 0, 0, 0, 1, results, Timing(), "cpu")
    return invoked(json.dumps(reply_json(reply)).encode(), log=log)


class Account(ScriptedDoor):
    """A fit account, with some answers replaced; its bucket gives back what was put."""

    def __init__(self, **changes: Answer | list[Answer]) -> None:
        script: dict[str, Answer | list[Answer]] = {
            "sts.get_caller_identity": {
                "Arn": "arn:aws:iam::1:user/me",
                "Account": "1",
                "ResponseMetadata": {"HTTPHeaders": {"date": NOON}},
            },
            "lambda.get_account_settings": limits(),
            "lambda.get_function_concurrency": {},
            "lambda.get_function_event_invoke_config": {"MaximumRetryAttempts": 0},
            "lambda.get_function": {"Configuration": CONFIGURATION, "Tags": TAGS, "Code": {"ImageUri": "i"}},
            "lambda.invoke": [replied(log=REPORT.format(init="2310.50")), summed()],
            "s3.head_bucket": {"BucketRegion": "us-east-1"},
            "s3.put_object": {},
            "s3.delete_object": {},
        }
        renamed = {name.replace("__", "."): answer for name, answer in changes.items()}
        super().__init__({**script, **renamed})
        self.objects: dict[str, bytes] = {}

    def call(self, service: str, operation: str, arguments: Any) -> dict[str, Any]:
        if operation == "get_object":
            return {"Body": io.BytesIO(self.objects.get(arguments["Key"], b""))}
        answer = super().call(service, operation, arguments)
        if operation == "put_object":
            self.objects[arguments["Key"]] = arguments["Body"]
        if operation == "invoke":
            self._work(parse_request(arguments["Payload"]))
        return answer

    def _work(self, request: Request) -> None:
        """What the worker would put into the bucket."""
        if request.reduce is not None:
            import torch

            total = torch.tensor([6.0], dtype=torch.float64)
            self.objects[request.reduce.out] = bytes(
                encode_result(total, torch.empty(0, dtype=torch.float64), "float64")
            )


def summed(status: str = "ok", error: str | None = None) -> dict[str, Any]:
    return replied("reduce", Result(0, 0, status, key="sum" if status == "ok" else None, error=error, size=1))


def findings(needs: Needs = NEEDS, now_s: float = NOON_S, **changes: Answer | list[Answer]) -> dict[str, Finding]:
    """Check -> what was found; the endpoints of this test are AWS's."""
    return {each.check: each for each in examine_account(Account(**changes), needs, lambda: now_s)}


def test_a_fit_account_is_fit() -> None:
    found = findings()
    assert {each.level for each in found.values()} == {Level.OK}
    assert set(found) == {
        "descriptors",
        "endpoints",
        "credentials",
        "clock",
        "concurrency",
        "bucket",
        "function",
        "versions",
        "handshake",
        "worker's bucket",
    }
    assert "cold start 2.31 s" in found["handshake"].says
    assert "251 of 2048 MB used" in found["handshake"].says
    assert exit_code(found.values()) == 0


def test_nothing_of_the_probe_stays() -> None:
    account = Account()
    list(examine_account(account, NEEDS, lambda: NOON_S))
    put = {arguments["Key"] for title, arguments in account.passed if title == "s3.put_object"}
    deleted = {arguments["Key"] for title, arguments in account.passed if title == "s3.delete_object"}
    assert put
    assert put <= deleted
    assert len(deleted - put) == 1  # what the worker wrote


@pytest.mark.parametrize(
    ("answer", "says", "do"),
    [
        (AwsError("sts: Unable to locate credentials"), "Unable to locate", "aws configure"),
        (ApiError("sts", "ExpiredToken", "expired"), "ExpiredToken", "log in again"),
        (ApiError("sts", "InvalidClientTokenId", "wrong"), "InvalidClientTokenId", "these keys are not valid"),
    ],
)
def test_without_credentials_nothing_else_is_looked_at(answer: AwsError, says: str, do: str) -> None:
    found = findings(sts__get_caller_identity=answer)
    assert says in found["credentials"].says
    assert do in found["credentials"].do
    assert "function" not in found
    assert exit_code(found.values()) == 3


def test_a_region_is_needed() -> None:
    account = Account()
    account.region = ""
    found = {each.check: each for each in examine_account(account, NEEDS)}
    assert found["region"].do == "set AWS_REGION, or region in the AWS profile"


@pytest.mark.parametrize(
    ("skew_s", "level"),
    [(0, "ok"), (-59, "ok"), (60, "warning"), (-100, "warning"), (240, "failure"), (-90_000, "failure")],
)
def test_the_clock_is_held_against_awss(skew_s: float, level: str) -> None:
    found = findings(now_s=NOON_S + skew_s)["clock"]
    assert found.level == level
    if level != "ok":
        assert ("ahead" if skew_s > 0 else "behind") in found.says


@pytest.mark.parametrize(
    ("settings", "reserved", "level", "do"),
    [
        (limits(10), {}, "failure", "--quota-code L-B99A9384 --desired-value 256, or set cluster.workers = 10"),
        (limits(1000, 50), {}, "failure", "cluster.workers = 50"),
        (limits(100), {}, "warning", "set cluster.concurrency = 100"),
        (limits(), {"ReservedConcurrentExecutions": 32}, "failure", "gradmux deploy --reserved"),
        (limits(10), {"ReservedConcurrentExecutions": 256}, "ok", ""),
    ],
)
def test_concurrency_is_held_against_the_job(
    settings: dict[str, Any], reserved: dict[str, int], level: str, do: str
) -> None:
    found = findings(lambda__get_account_settings=settings, lambda__get_function_concurrency=reserved)["concurrency"]
    assert found.level == level
    assert do in found.do
    assert found.quota == (level == "failure")


def test_only_limits_in_the_way_is_exit_code_4() -> None:
    limit, other = failure("a", "", "", quota=True), failure("b", "", "")
    assert exit_code([well("c", ""), warning("d", "", "")]) == 0
    assert exit_code([limit, well("c", "")]) == 4
    assert exit_code([limit, other]) == 3


def test_a_new_account_is_told_so_even_without_a_job() -> None:
    found = findings(Needs("f", "b"), lambda__get_account_settings=limits(10))["concurrency"]
    assert found.level is Level.WARNING
    assert "new accounts" in found.says


@pytest.mark.parametrize(
    ("code", "says", "do"),
    [
        ("404", "s3://bucket: 404", "gradmux deploy makes one"),
        ("403", "403", "belongs to somebody else"),
        ("301", "301", "another region"),
    ],
)
def test_a_bucket_that_cannot_be_used(code: str, says: str, do: str) -> None:
    found = findings(s3__head_bucket=ApiError("s3.head_bucket", code, ""))["bucket"]
    assert (found.level, says in found.says, do in found.do) == (Level.FAILURE, True, True)


def test_a_bucket_elsewhere_is_slow_and_dear() -> None:
    found = findings(s3__head_bucket={"BucketRegion": "eu-west-1"})["bucket"]
    assert found.level is Level.WARNING
    assert "is in eu-west-1, the function in us-east-1" in found.says


def test_a_bucket_that_may_only_be_read() -> None:
    found = findings(s3__put_object=ApiError("s3.put_object", "AccessDenied", "no"))
    assert "gradmux deploy --policies" in found["bucket"].do


def function(**changes: Any) -> dict[str, Any]:
    return {"Configuration": {**CONFIGURATION, **changes}, "Tags": TAGS}


@pytest.mark.parametrize(
    ("changes", "check", "level", "do"),
    [
        ({"State": "Pending"}, "function", "failure", "wait a minute"),
        ({"LastUpdateStatus": "InProgress"}, "function", "failure", "wait a minute"),
        ({"State": "Inactive"}, "function", "warning", "wakes it"),
        ({"State": "Failed", "StateReasonCode": "ImageAccessDenied"}, "function", "failure", "repository's policy"),
        ({"State": "Failed", "StateReasonCode": "EniLimitExceeded"}, "function", "failure", "out of the VPC"),
        (
            {"LastUpdateStatus": "Failed", "LastUpdateStatusReasonCode": "DisabledKMSKey"},
            "function",
            "failure",
            "enable it",
        ),
        ({"Timeout": 30}, "timeout", "warning", "cluster.timeout_s = 30"),
        ({"Timeout": 900}, "timeout", "warning", "gradmux deploy --timeout 60"),
        ({"MemorySize": 512}, "memory", "warning", "gradmux deploy --memory 884"),
        ({"VpcConfig": {"VpcId": "vpc-1"}}, "network", "warning", "S3 gateway endpoint"),
    ],
)
def test_a_function_that_is_not_as_it_should_be(changes: dict[str, Any], check: str, level: str, do: str) -> None:
    found = findings(lambda__get_function=function(**changes))[check]
    assert found.level == level
    assert do in found.do


def test_no_function_ends_the_round() -> None:
    found = findings(lambda__get_function=ApiError("lambda.get_function", "ResourceNotFoundException", ""))
    assert "no function gradmux-worker in us-east-1" in found["function"].says
    assert "handshake" not in found


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ({"gradmux:protocol": "1"}, "the image speaks contract version 1, this client 3"),
        ({"gradmux:python": "3.14", "gradmux:protocol": "3"}, "the image has Python 3.14, this machine 3.12"),
    ],
)
def test_an_image_of_another_version(tags: dict[str, str], says: str) -> None:
    found = findings(lambda__get_function={"Configuration": CONFIGURATION, "Tags": tags})["versions"]
    assert (found.level, found.says) == (Level.FAILURE, says)


def test_retries_behind_the_clients_back_are_told() -> None:
    gone = ApiError("get", "ResourceNotFoundException", "")
    found = findings(lambda__get_function_event_invoke_config=gone)["retries"]
    assert found.says == "Lambda repeats failed asynchronous calls twice"


@pytest.mark.parametrize(
    ("answer", "says", "do"),
    [
        (failed("VersionError", "this worker image speaks contract version 2"), "version 2", "gradmux deploy"),
        (failed("Runtime.ExitError", "fork/exec /x: exec format error"), "exec format", "another architecture"),
        (failed("Runtime.OutOfMemory", "signal: killed"), "OutOfMemory", "--memory"),
        (failed("Sandbox.Timedout", "Task timed out after 60.00 seconds"), "timed out", "--timeout"),
        (failed("Runtime.ImportModuleError", "No module named 'x'"), "No module", "no worker of ours"),
        (invoked(b'{"statusCode": 200}'), "ContractError", "log"),
        (invoked(b"nonsense", error=True), "function error", "log"),
        (ApiError("lambda.invoke", "TooManyRequestsException", "Rate Exceeded."), "TooMany", "reserve some"),
        (ApiError("lambda.invoke", "KMSDisabledException", ""), "KMS", "key"),
        (ApiError("lambda.invoke", "ENILimitReachedException", ""), "ENI", "VPC"),
        (ApiError("lambda.invoke", "AccessDeniedException", ""), "AccessDenied", "lambda:InvokeFunction"),
    ],
)
def test_a_call_that_fails_is_told_apart(answer: Answer, says: str, do: str) -> None:
    found = findings(lambda__invoke=answer)["handshake"]
    assert (found.level, says in found.says, do in found.do) == (Level.FAILURE, True, True), found


@pytest.mark.parametrize(
    ("reason", "do"),
    [
        ("ReservedFunctionConcurrentInvocationLimitExceeded", "gradmux deploy --reserved, with more"),
        ("ConcurrentInvocationLimitExceeded", "reserve some for the function"),
    ],
)
def test_which_limit_throttles_is_told_through_boto3(reason: str, do: str) -> None:
    async def throttle(_: Posted) -> web.StreamResponse:
        return refuse(429, "TooManyRequestsException", "Rate Exceeded.", Reason=reason)

    with FakeLambda(throttle) as fake:
        door = BotoDoor.closed("us-east-1", {"lambda": fake.url})
        (found,) = handshake.examine(door, Needs("f", "b"))
    assert found.says == f"lambda.invoke: TooManyRequestsException: Rate Exceeded. ({reason})"
    assert do in found.do


def test_a_start_that_outlasts_init_is_a_warning() -> None:
    slow = replied(log=REPORT.format(init="10200.00"))
    assert findings(lambda__invoke=[slow, summed()])["handshake"].level is Level.WARNING


def test_a_role_that_may_not_use_the_bucket() -> None:
    denied = summed("failed", "StoreError: s3://bucket/runs: AccessDenied\nmore")
    found = findings(lambda__invoke=[replied(), denied])["worker's bucket"]
    assert (found.level, found.says) == (Level.FAILURE, "StoreError: s3://bucket/runs: AccessDenied")
    assert "role" in found.do


def test_what_may_not_be_asked_is_a_failure_that_says_so() -> None:
    denied = ApiError("lambda.get_account_settings", "AccessDeniedException", "no")
    found = findings(lambda__get_account_settings=denied)
    assert "lambda.get_account_settings" in found["concurrency"].do
    assert found["handshake"].level is Level.OK


@pytest.mark.parametrize(("model_mb", "level"), [(4, "ok"), (200, "warning"), (400, "failure")])
def test_memory_is_held_against_the_largest_model(model_mb: int, level: str) -> None:
    needs = Needs("f", "b", worker_mb=memory_mb(model_mb * 2**20))
    found = findings(needs)["memory"]
    assert found.level == level
    assert ("gradmux deploy --memory" in found.do) == (level != "ok")


def test_memory_grows_with_the_model() -> None:
    sizes = [memory_mb(size) for size in (0, 2**20, 2**24, 2**27, 2**30)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 260


def test_more_calls_than_descriptors_is_a_warning() -> None:
    found = findings(Needs("f", "b", concurrency=10**9))["descriptors"]
    assert found.do == "ulimit -n 1000000100"


class Elsewhere(Account):
    """An account whose endpoints are not AWS's."""

    def endpoint(self, service: str) -> str:
        return f"http://127.0.0.1:1/{service}" if service != "sts" else "https://sts.amazonaws.com"


@pytest.mark.parametrize("local", [True, False])
def test_endpoints_are_told_and_judged(local: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1/s3")
    needs = Needs("f", "b", local=local)
    found = {each.check: each for each in examine_account(Elsewhere(), needs, lambda: NOON_S)}["endpoints"]
    assert "s3 http://127.0.0.1:1/s3" in found.says
    if local:
        assert found.level is Level.FAILURE
        assert "sts would leave this machine" in found.says
    else:
        assert found.level is Level.WARNING
        assert found.do.endswith("unset AWS_ENDPOINT_URL_S3")


def test_a_closed_door_leads_to_nothing_but_its_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://example.invalid")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAREAL")
    door = BotoDoor.closed("us-east-1", {"s3": "http://127.0.0.1:9"})
    assert door.endpoint("s3") == "http://127.0.0.1:9"
    with pytest.raises(AwsError, match="lambda: not part of the emulator"):
        door.call("lambda", "get_account_settings", {})
