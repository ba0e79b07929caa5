"""The environment's proxies, as AWS's own tools read them: calls and objects go through, but never to this machine."""

from __future__ import annotations

import pytest
from aiohttp import web

from benchmarks.boto3_fleet import Boto3Fleet
from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.fleets.calling import Function
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.ports import Outcome
from gradmux.orchestrator.store import MemoryStore, S3Store, StoreUnavailable
from tests.orchestrator.fleet_contract import call, take_all
from tests.orchestrator.fleets.asking import ask, opened
from tests.orchestrator.fleets.emulated import RealFleet
from tests.orchestrator.fleets.fake_lambda import FakeLambda, PlainRequests, Posted

pytestmark = pytest.mark.usefixtures("aws_environment")

FAR = "http://lambda.invalid:8080"
"""nobody's name: it can be reached through a proxy alone"""


@pytest.fixture(autouse=True)
def _no_proxies_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_calls_go_through(kind: RealFleet, endpoint: FakeLambda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", endpoint.url.replace("//", "//me:secret@"))
    with opened(kind, FAR) as fleet:
        fleet.invoke([call(0, worker) for worker in range(3)])
        assert [arrival.outcome for arrival in take_all(fleet)] == [Outcome.OK] * 3
    assert {post.headers["Host"] for post in endpoint.posts} == {"lambda.invalid:8080"}
    assert {post.headers["Proxy-Authorization"] for post in endpoint.posts} == {"Basic bWU6c2VjcmV0"}


def test_calls_go_past_where_the_environment_says_so(
    kind: RealFleet, endpoint: FakeLambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", endpoint.url)
    monkeypatch.setenv("NO_PROXY", ".invalid")
    with opened(kind, FAR, function=Function("worker", timeout_s=0.1)) as fleet:
        fleet.invoke([call(0, 0)])
        (arrival,) = take_all(fleet)
    assert arrival.outcome is Outcome.UNREACHABLE
    assert not endpoint.posts


def test_this_machine_is_reached_without(
    kind: RealFleet, endpoint: FakeLambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    if kind is Boto3Fleet:  # a stock client has to be told
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert ask(kind, endpoint).outcome is Outcome.OK


def test_objects_go_the_same_way(endpoint: FakeLambda, monkeypatch: pytest.MonkeyPatch) -> None:
    async def give(posted: Posted) -> web.StreamResponse:
        return web.Response(body=b"content", headers={"ETag": "1", "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"})

    endpoint.behave = give
    far = FAR.replace("lambda", "s3")
    monkeypatch.setenv("HTTP_PROXY", endpoint.url)
    assert S3Store("bucket", endpoint_url=far, patience_s=0.1).get("key") == b"content"
    assert [post.headers["Host"] for post in endpoint.posts] == ["s3.invalid:8080"]
    monkeypatch.setenv("NO_PROXY", ".invalid")
    with pytest.raises(StoreUnavailable):
        S3Store("bucket", endpoint_url=far, patience_s=0.1).get("key")
    assert len(endpoint.posts) == 1


def test_a_proxy_that_is_not_understood_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "https://me:secret@proxy.invalid:3128")
    with pytest.raises(PreflightError, match=r"proxy https://proxy\.invalid: only http:// proxies") as caught:
        LambdaFleet(Function("worker"), PlainRequests(), MemoryStore(), run="run", endpoint_url=FAR)
    assert "secret" not in str(caught.value)
