"""What S3, and what stands between, can answer: the cause is told, a wrong clock is set, nothing is trusted."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

import botocore.session
import pytest
from botocore.credentials import CredentialProvider, CredentialResolver, RefreshableCredentials
from botocore.exceptions import ClientError, SSOTokenLoadError

from gradmux.infra.closed_session import closed_session
from gradmux.orchestrator.errors import PreflightError, RunStopped
from gradmux.orchestrator.runs.patience import PatientStore
from gradmux.orchestrator.s3 import settings
from gradmux.orchestrator.store import S3Store, StoreUnavailable
from tests.orchestrator.conftest import BUCKET
from tests.orchestrator.standin import Asked, Behaviour, Said, page, passed_on, s3_error, standing_in

Use = Callable[[S3Store], object]
USES: dict[str, Use] = {
    "get": lambda store: store.get("runs/k"),
    "put": lambda store: store.put("runs/k", b"x"),
    "create": lambda store: store.create("runs/k", b"x"),
    "exists": lambda store: store.exists("runs/k"),
    "list": lambda store: store.list("runs/"),
    "range": lambda store: store.get_range("runs/k", 0, 5),
    "delete": lambda store: store.delete(["runs/k"]),
}
every_use = pytest.mark.parametrize("use", USES.values(), ids=USES)


def opened(url: str, **options: Any) -> S3Store:
    session = options.pop("session", None) or closed_session("us-east-1")
    return S3Store(options.pop("bucket", BUCKET), endpoint_url=url, session=session, patience_s=0.3, **options)


def refused(behave: Behaviour, use: Use) -> Exception:
    with standing_in(behave) as url, pytest.raises((PreflightError, StoreUnavailable)) as caught:
        use(opened(url))
    assert "\n" not in str(caught.value)
    return caught.value


# --- S3's own cause ----------------------------------------------------------------------------------------------

REFUSALS = [
    (403, "AccessDenied", "User u may not", {}, "", PreflightError, "AccessDenied: User u may not"),
    (400, "KMS.DisabledException", "key/x is disabled.", {}, "", PreflightError, "kms:Decrypt"),
    (403, "InvalidObjectState", "not valid for", {}, "", PreflightError, "restore it"),
    (403, "InvalidAccessKeyId", "does not exist", {}, "", PreflightError, "AWS_PROFILE"),
    (403, "SignatureDoesNotMatch", "does not match", {}, "", PreflightError, "secret key"),
    (400, "ExpiredToken", "has expired.", {}, "", StoreUnavailable, "log in again"),
    (404, "NoSuchBucket", "no", {}, "", PreflightError, "there is no bucket"),
    (301, "PermanentRedirect", "elsewhere", {"x-amz-bucket-region": "eu-west-1"}, "", PreflightError, "eu-west-1"),
    (
        *(400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-1'", {}),
        *("<Region>eu-west-1</Region>", PreflightError, "eu-west-1: set AWS_REGION"),
    ),
]  # fmt: skip


@every_use
@pytest.mark.parametrize(
    ("status", "code", "message", "headers", "extra", "kind", "told"), REFUSALS, ids=[each[1] for each in REFUSALS]
)
def test_the_cause_is_told(
    use: Use,
    status: int,
    code: str,
    message: str,
    headers: dict[str, str],
    extra: str,
    kind: type[Exception],
    told: str,
) -> None:
    """Of a HEAD, which brings no reason, it is asked for."""
    asked: list[Asked] = []

    def behave(request: Asked) -> Said:
        asked.append(request)
        return Said(status, s3_error(code, message, extra), {"Content-Type": "application/xml", **headers})

    if code == "NoSuchBucket" and use is USES["exists"]:
        pytest.skip("a HEAD cannot tell a missing bucket from a missing object, and neither is needed to be")
    error = refused(behave, use)
    assert isinstance(error, kind)
    assert told in str(error)
    assert len(asked) <= 2, "the reason, not a repetition"


def test_what_is_missing_is_no_trouble() -> None:
    def behave(request: Asked) -> Said:
        return Said(404, s3_error("NoSuchKey"), {"Content-Type": "application/xml"})

    with standing_in(behave) as url:
        store = opened(url)
        assert not store.exists("k")
        with pytest.raises(FileNotFoundError):
            store.get("k")


@every_use
@pytest.mark.parametrize("status", [200, 302, 403, 500])
def test_a_web_page_is_told_in_one_line(use: Use, status: int) -> None:
    error = refused(lambda asked: page(status), use)
    assert "<" not in str(error)
    assert f"HTTP {status}" in str(error)


# --- a wrong clock -----------------------------------------------------------------------------------------------


def skewed(s3_endpoint: str, ahead_s: float, seen: list[str]) -> Behaviour:
    """S3 whose clock is ahead of this machine's, and which is strict."""

    def behave(asked: Asked) -> Said:
        now_s = time.time() + ahead_s
        signed = datetime.datetime.strptime(asked.headers["x-amz-date"], "%Y%m%dT%H%M%S%z").timestamp()
        seen.append(asked.method)
        if abs(signed - now_s) < 300:
            return passed_on(s3_endpoint, asked)
        told = datetime.datetime.fromtimestamp(now_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = s3_error("RequestTimeTooSkewed", "The difference is too large.", f"<ServerTime>{told}</ServerTime>")
        return Said(403, body, {"Content-Type": "application/xml"})

    return behave


@pytest.mark.parametrize("ahead_s", [-86_400.0, 900.0, 3600.0])
def test_a_wrong_clock_is_set_by_s3s(s3_endpoint: str, ahead_s: float) -> None:
    seen: list[str] = []
    with standing_in(skewed(s3_endpoint, ahead_s, seen)) as url:
        store = opened(url, prefix=f"skew{ahead_s}")
        store.put("a/k", b"abcdef")
        refusals = len(seen)
        assert store.get("a/k") == b"abcdef"
        assert store.get_range("a/k", 1, 3) == b"bc"
        assert store.exists("a/k")
        assert not store.exists("a/none")
        assert not store.create("a/k", b"other")
        assert store.create("a/l", b"")
        assert store.list("a/") == ["a/k", "a/l"]
        with pytest.raises(FileNotFoundError):
            store.get("a/none")
        store.put_many({f"b/{number}": b"x" for number in range(20)})
        assert len(store.view_many(store.list("b/"))) == 20
        store.delete(store.list(""))
        assert store.list("") == []
    assert refusals == 2, "one refusal brought the time"


def test_a_clock_is_set_by_the_refusal_of_a_head_too(s3_endpoint: str) -> None:
    def behave(asked: Asked) -> Said:
        said = strict(asked)
        ahead = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        return Said(said.status, said.body, {**said.headers, "Date": ahead.strftime("%a, %d %b %Y %H:%M:%S GMT")})

    strict = skewed(s3_endpoint, 3600.0, [])
    with standing_in(behave) as url:
        assert not opened(url, prefix="head").exists("none")


# --- conditions --------------------------------------------------------------------------------------------------


def test_a_store_that_ignores_conditions_is_found_out_before_it_is_trusted(s3_endpoint: str) -> None:
    honest = opened(s3_endpoint, prefix="conditions")
    honest.put("lock", b"somebody else's")
    with standing_in(lambda asked: passed_on(s3_endpoint, asked, leaving_out=("if-none-match",))) as url:
        for _ in range(2):
            with pytest.raises(PreflightError, match="ignores If-None-Match") as caught:
                opened(url, prefix="conditions").create("lock", b"mine")
    assert caught.value.exit_code == 3
    assert honest.get("lock") == b"somebody else's", "nothing was overwritten to find that out"
    assert honest.list("") == ["lock"]


def test_one_that_keeps_them_is_asked_once(s3_endpoint: str) -> None:
    puts: list[str] = []

    def behave(asked: Asked) -> Said:
        if asked.method == "PUT":
            puts.append(asked.path)
        return passed_on(s3_endpoint, asked)

    with standing_in(behave) as url:
        store = opened(url, prefix="kept")
        assert [store.create("a", b"1"), store.create("a", b"2"), store.create("b", b"3")] == [True, False, True]
    assert len(puts) == 5


def test_of_two_clients_at_once_one_is_first(s3_endpoint: str) -> None:
    stores = [opened(s3_endpoint, prefix="race") for _ in range(8)]
    start, won = threading.Barrier(8), []

    def take(store: S3Store) -> None:
        start.wait()
        if store.create("lock", b"x"):
            won.append(store)

    threads = [threading.Thread(target=take, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # moto's own server is not atomic here; the emulator's is (tests/infra/local/test_s3.py)
    assert len(won) >= 1


# --- the environment ---------------------------------------------------------------------------------------------

ENVIRONMENT = [
    "S3_EXPRESS=true CONDITIONAL_PUT=dynamo:t:1 SERVER_SIDE_ENCRYPTION=aws:kms TIMEOUT=abc BUCKET_NAME=zz "
    "IMDSV1_FALLBACK=perhaps USER_AGENT=abc RETRY_MODE=foo",
    "REQUEST_PAYER=requester SKIP_SIGNATURE=true SSE_KMS_KEY_ID=abc CONNECT_TIMEOUT=1 ENDPOINT=http://127.0.0.1:1 "
    "COPY_IF_NOT_EXISTS=header REGION=eu-west-9 USE_FIPS_ENDPOINT=perhaps",
    "REQUEST_PAYER=perhaps SKIP_SIGNATURE=perhaps SSE_CUSTOMER_KEY_BASE64=abc READ_TIMEOUT=abc "
    "ENDPOINT_URL=http://127.0.0.1:1 DISABLE_TAGGING=perhaps DEFAULT_REGION=eu-west-9 PROFILE=none",
    "CHECKSUM_ALGORITHM=SHA256 UNSIGNED_PAYLOAD=true SSE_BUCKET_KEY_ENABLED=true POOL_MAX_IDLE_PER_HOST=abc "
    "ENDPOINT_URL_S3=http://127.0.0.1:1 DISABLE_BULK_DELETE=true HTTP2_ONLY=true CA_BUNDLE=/nonexistent",
    "CHECKSUM_ALGORITHM=crc64nvme VIRTUAL_HOSTED_STYLE_REQUEST=true METADATA_ENDPOINT=x ALLOW_HTTP=false "
    "TOKEN=abc WEB_IDENTITY_TOKEN_FILE=/nonexistent CONTAINER_CREDENTIALS_RELATIVE_URI=/x DEFAULTS_MODE=x",
    "CONDITIONAL_PUT=disabled SERVER_SIDE_ENCRYPTION=foo PROXY_URL=http://127.0.0.1:1 BUCKET=zz SESSION_TOKEN=zz "
    "ROLE_ARN=arn:x MAX_ATTEMPTS=abc REQUEST_CHECKSUM_CALCULATION=when_supported",
]
"""Each alone would lead elsewhere, or to nothing."""


@pytest.mark.parametrize("variables", ENVIRONMENT)
def test_the_environment_cannot_reach_behind_our_back(
    monkeypatch: pytest.MonkeyPatch, s3_endpoint: str, variables: str
) -> None:
    for name, value in (variable.split("=") for variable in variables.split()):
        monkeypatch.setenv(f"AWS_{name}", value)
    asked: list[Asked] = []

    def behave(request: Asked) -> Said:
        asked.append(request)
        return passed_on(s3_endpoint, request)

    with standing_in(behave) as url:
        store = opened(url, prefix=f"env-{ENVIRONMENT.index(variables)}")
        store.put("k", b"abc")
        assert store.get("k") == b"abc"
        assert store.list("") == ["k"]
        assert [store.create("new", b"1"), store.create("new", b"1")] == [True, False]
        store.delete(["k", "new"])
    credentials = "Credential=none/"
    for request in asked:
        assert credentials in request.headers["authorization"]
        assert "/us-east-1/s3/" in request.headers["authorization"]
        assert request.headers["x-amz-content-sha256"] != "UNSIGNED-PAYLOAD"
        ours = {"x-amz-date", "x-amz-content-sha256", "x-amz-security-token"}
        if request.method == "POST":
            ours.add("x-amz-checksum-sha256")  # deletions by the thousand have to have one
        assert {each for each in request.headers if each.startswith("x-amz-")} <= ours


@pytest.mark.parametrize("name", ["ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "all_proxy"])
def test_no_proxy_stands_before_a_store_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, s3_endpoint: str, name: str
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    store = opened(s3_endpoint, prefix=f"proxy-{name}")
    store.put("k", b"abc")
    assert store.get("k") == b"abc"


def test_only_the_proxy_that_aws_tools_take_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The S3 library also reads ALL_PROXY, which AWS's own tools do not."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    seen: list[str] = []

    def behave(asked: Asked) -> Said:
        seen.append(asked.path)
        return Said(404, s3_error("NoSuchKey"))

    session = closed_session("us-east-1")
    with standing_in(behave) as url:
        monkeypatch.setenv("ALL_PROXY", url)
        with pytest.raises(StoreUnavailable):
            opened("http://store.invalid", session=session).get("k")
        assert not seen
        monkeypatch.setenv("HTTP_PROXY", url)
        with pytest.raises(FileNotFoundError):
            opened("http://store.invalid", session=session).get("k")
    assert seen == [f"http://store.invalid/{BUCKET}/k"]


def test_hidden_variables_come_back(monkeypatch: pytest.MonkeyPatch, s3_endpoint: str) -> None:
    import os

    monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "foo")
    opened(s3_endpoint)
    assert os.environ["AWS_SERVER_SIDE_ENCRYPTION"] == "foo"


def test_on_aws_itself_the_bucket_is_part_of_the_host_unless_it_has_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradmux.orchestrator.aws import Endpoint

    public = Endpoint("s3", "https://s3.eu-west-1.amazonaws.com", "eu-west-1")
    told: Any = settings.config("mine", public)
    assert told["aws_endpoint_url_s3"] == "https://mine.s3.eu-west-1.amazonaws.com"
    assert told["virtual_hosted_style_request"] is True
    dotted: Any = settings.config("my.bucket", public)
    assert dotted["aws_endpoint_url_s3"] == public.url
    assert dotted["virtual_hosted_style_request"] is False


# --- what never ends ---------------------------------------------------------------------------------------------


def test_an_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(settings, "REQUEST_S", 0.1)
    over = threading.Event()

    def drip(listening: socket.socket) -> None:
        listening.settimeout(0.2)
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            threading.Thread(target=feed, args=(connection,), daemon=True).start()

    def feed(connection: socket.socket) -> None:
        connection.recv(65536)
        try:
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 9999\r\nETag: "x"\r\n')
            connection.sendall(b"Last-Modified: Tue, 04 Mar 2014 19:47:51 GMT\r\n\r\n")
            while not over.wait(0.01):
                connection.sendall(b"x")
        except OSError:
            pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,), daemon=True)
        thread.start()
        try:
            with pytest.raises(StoreUnavailable):
                opened(f"http://127.0.0.1:{listening.getsockname()[1]}").get("k")
        finally:
            over.set()
            thread.join()


# --- credentials -------------------------------------------------------------------------------------------------

TROUBLES: list[Exception] = [
    ClientError({"Error": {"Code": "AccessDenied", "Message": "not authorized: sts:AssumeRole"}}, "AssumeRole"),
    SSOTokenLoadError(error_msg="the SSO session has expired"),
    RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
    ValueError("Expecting value: line 1 column 1 (char 0)"),
    KeyError("Expiration"),
]  # fmt: skip


class Failing(CredentialProvider):
    """Gives credentials that expire at once, and raises at each renewal while `trouble` is set."""

    METHOD = "test"

    def __init__(self, trouble: Exception | None) -> None:
        self.trouble, self.asked = trouble, 0

    def load(self) -> RefreshableCredentials:
        return RefreshableCredentials(
            "old", "s", "t", datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1),
            refresh_using=self.renew, method="test",
        )  # fmt: skip

    def renew(self) -> dict[str, str]:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        expiry = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        return {"access_key": "new", "secret_key": "s", "token": "t", "expiry_time": expiry.isoformat()}


def session_of(provider: Failing) -> botocore.session.Session:
    session = botocore.session.Session()
    session.register_component("credential_provider", CredentialResolver([provider]))
    session.set_config_variable("region", "us-east-1")
    return session


@pytest.fixture(params=TROUBLES, ids=lambda trouble: type(trouble).__name__)
def provider(request: pytest.FixtureRequest) -> Failing:
    return Failing(request.param)


def test_credentials_that_cannot_be_renewed_are_waited_for(provider: Failing, s3_endpoint: str) -> None:
    store = PatientStore(
        lambda: opened(s3_endpoint, session=session_of(provider)), patience_s=30.0, should_stop=lambda: None
    )

    def heal() -> None:
        provider.trouble = None

    timer = threading.Timer(0.3, heal)
    timer.start()
    store.put("renewed", b"x")
    assert store.get("renewed") == b"x"
    store.close()


def test_then_the_run_stops_and_can_be_resumed(provider: Failing, s3_endpoint: str) -> None:
    store = PatientStore(
        lambda: opened(s3_endpoint, session=session_of(provider)), patience_s=0.3, should_stop=lambda: None
    )
    with pytest.raises(RunStopped, match="credentials cannot be renewed") as caught:
        store.put("never", b"x")
    store.close()
    assert caught.value.exit_code == 5
    assert "\n" not in str(caught.value)
