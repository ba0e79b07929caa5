"""Credentials that expire are renewed before they do, and when AWS says that they have."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from email.utils import format_datetime

import botocore.session
import pytest
from aiohttp import web
from botocore.credentials import CredentialProvider, CredentialResolver, RefreshableCredentials
from botocore.exceptions import CredentialRetrievalError

from gradmux.orchestrator.fleets import signing
from gradmux.orchestrator.fleets.calling import Function, Patience
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.ports import Arrival, Outcome
from gradmux.orchestrator.store import MemoryStore
from tests.orchestrator.fleet_contract import call, take_all
from tests.orchestrator.fleets.fake_lambda import FakeLambda, PlainRequests, Posted, answer_well, refuse


class Issuer(CredentialProvider):
    """Gives key K1, K2, ...; each is good for `life_s`, and takes `wait_s` to get."""

    METHOD = "test"

    def __init__(self, life_s: float, wait_s: float = 0.0, fails: bool = False) -> None:
        self.issued, self._life_s, self._wait_s, self.fails = 0, life_s, wait_s, fails
        self.passed_s = 0.0
        """how far botocore's clock is ahead of this machine's"""

    def load(self) -> RefreshableCredentials:
        first = self.issue()
        return RefreshableCredentials(
            first["access_key"], first["secret_key"], first["token"],
            datetime.datetime.fromisoformat(first["expiry_time"]),
            refresh_using=self.issue, method="test", time_fetcher=self.now,
        )  # fmt: skip

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.passed_s)

    def issue(self) -> dict[str, str]:
        if self.fails and self.issued:
            raise CredentialRetrievalError(provider="test", error_msg="the role is gone")
        time.sleep(self._wait_s)
        self.issued += 1
        expiry = self.now() + datetime.timedelta(seconds=self._life_s)
        return {
            "access_key": f"K{self.issued}",
            "secret_key": "s",
            "token": f"T{self.issued}",
            "expiry_time": expiry.isoformat(),
        }


def session_of(issuer: Issuer) -> botocore.session.Session:
    session = botocore.session.Session()
    session.register_component("credential_provider", CredentialResolver([issuer]))
    session.set_config_variable("region", "us-east-1")
    return session


def ask(issuer: Issuer, behave: Callable[[Posted], object], rounds: int = 1) -> tuple[list[Arrival], FakeLambda]:
    arrivals: list[Arrival] = []
    with FakeLambda(behave) as endpoint:  # type: ignore[arg-type]
        fleet = LambdaFleet(
            Function("worker"), PlainRequests(), MemoryStore(), run="run", session=session_of(issuer),
            endpoint_url=endpoint.url, patience=Patience(unavailable_s=0.3, first_wait_s=0.01),
        )  # fmt: skip
        for round in range(rounds):
            fleet.invoke([call(round, worker) for worker in range(4)])
            arrivals += take_all(fleet)
        fleet.close()
    return arrivals, endpoint


def keys_used(endpoint: FakeLambda) -> list[str]:
    return [post.headers["Authorization"].split("Credential=")[1].split("/")[0] for post in endpoint.posts]


def test_good_credentials_are_asked_for_once() -> None:
    arrivals, endpoint = ask(Issuer(life_s=86_400), answer_well, rounds=3)
    assert len(arrivals) == 12
    assert set(keys_used(endpoint)) == {"K1"}
    assert {post.headers["X-Amz-Security-Token"] for post in endpoint.posts} == {"T1"}


def test_credentials_near_their_end_are_renewed_once_for_all_calls() -> None:
    issuer = Issuer(life_s=60, wait_s=0.05)  # botocore renews what lives shorter than 10 minutes
    arrivals, endpoint = ask(issuer, answer_well)
    assert {a.outcome for a in arrivals} == {Outcome.OK}
    assert keys_used(endpoint) == ["K2"] * 4


def test_a_run_outlives_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour's credentials, and a round every twenty minutes: no call goes out with what is about to expire."""
    monkeypatch.setattr(signing, "RECHECK_S", -1.0)  # as if so long had passed since the last call
    issuer, used = Issuer(life_s=3600.0), []
    with FakeLambda() as endpoint:
        fleet = LambdaFleet(
            Function("worker"), PlainRequests(), MemoryStore(), run="run", session=session_of(issuer),
            endpoint_url=endpoint.url,
        )  # fmt: skip
        for round in range(7):
            fleet.invoke([call(round, worker) for worker in range(4)])
            assert {arrival.outcome for arrival in take_all(fleet)} == {Outcome.OK}
            used.append(set(keys_used(endpoint)[-4:]))
            issuer.passed_s += 1200.0
        fleet.close()
    assert used == [{"K1"}, {"K1"}, {"K1"}, {"K2"}, {"K2"}, {"K2"}, {"K3"}]
    assert len(endpoint.posts) == 7 * 4, "and none was refused"


def test_credentials_that_aws_calls_expired_are_renewed() -> None:
    async def first_refuse(posted: Posted) -> web.StreamResponse:
        if "K2/" in posted.headers["Authorization"]:
            return refuse(403, "ExpiredTokenException", "The security token included in the request is expired")
        return await answer_well(posted)

    issuer = Issuer(life_s=60, wait_s=0.05)
    arrivals, endpoint = ask(issuer, first_refuse)
    assert {a.outcome for a in arrivals} == {Outcome.OK}
    assert set(keys_used(endpoint)) == {"K2", "K3"}
    assert keys_used(endpoint).count("K3") == 4
    assert issuer.issued == 3


@pytest.mark.parametrize("fails", [True, False])
def test_credentials_that_cannot_be_had_are_an_outcome(fails: bool) -> None:
    async def refuse_all(posted: Posted) -> web.StreamResponse:
        return refuse(403, "ExpiredTokenException", "expired")

    arrivals, _ = ask(Issuer(life_s=60, fails=fails), refuse_all)
    assert {a.outcome for a in arrivals} == {Outcome.UNREACHABLE}
    expected = "credentials cannot be renewed" if fails else "ExpiredTokenException: expired"
    assert all(expected in a.error for a in arrivals)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wrong_clock_is_set_by_the_one_of_aws(hours: int) -> None:
    """The first refusal brings the right time, and all calls are repeated with it; later rounds begin with it."""
    true_now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)

    async def strict(posted: Posted) -> web.StreamResponse:
        signed = datetime.datetime.strptime(posted.headers["X-Amz-Date"], "%Y%m%dT%H%M%S%z")
        if abs(signed - true_now) < datetime.timedelta(minutes=5):
            return await answer_well(posted)
        refusal = refuse(403, "InvalidSignatureException", "Signature expired: ... is now earlier than ...")
        refusal.headers["Date"] = format_datetime(true_now, usegmt=True)
        return refusal

    arrivals, endpoint = ask(Issuer(life_s=86_400), strict, rounds=2)
    assert {a.outcome for a in arrivals} == {Outcome.OK}
    assert 8 < len(endpoint.posts) <= 12
