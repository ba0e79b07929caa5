"""The verifier beside botocore's own signer, and AWS's published examples."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import quote

from botocore.auth import HmacV1QueryAuth, S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from gradmux.infra.local.canonical import canonical_targets, without_dots
from gradmux.infra.local.s3_payload import CHUNKS, CHUNKS_AND_TRAILER, UNSIGNED_CHUNKS, keeps_promise
from gradmux.infra.local.s3_url import check_old_url, is_old_url
from gradmux.infra.local.secret import TOKEN, Secret
from gradmux.infra.local.sigv4 import EMPTY, UNSIGNED, Fault, Refusal, Signed, Verifier
from gradmux.orchestrator.fleets.signing import Signer, Target

SECRET = Secret("LOCALHYPOTHESIS00000", "a secret/with+signs")
KEYS = Credentials(SECRET.access_key, SECRET.secret_key)
REGION = "eu-central-1"
HOST = "http://127.0.0.1:9000"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SEGMENTS = st.lists(
    st.one_of(TEXT, st.sampled_from([".", "..", "", "a b", "a+b", "a%2Fb", "~", "*'()!", "é", "$LATEST"])), max_size=4
)
QUERIES = st.lists(st.tuples(TEXT.filter(bool), TEXT), max_size=4)
NAMES = st.sampled_from(["x-amz-meta-a", "x-amz-acl", "content-type", "range", "accept", "x-other", "amz-sdk-request"])
VALUES = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=12).map(lambda text: f"v {text} w")
HEADERS = st.dictionaries(NAMES, VALUES, max_size=4)
BODIES = st.binary(max_size=40)


def made(segments: list[str], query: list[tuple[str, str]], headers: dict[str, str], body: bytes) -> AWSRequest:
    path = "/" + "/".join(quote(segment, safe="~") for segment in segments)
    asked = "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in query)
    request = AWSRequest("POST", HOST + path + (f"?{asked}" if asked else ""), data=body, headers=headers)
    request.context["payload_signing_enabled"] = True
    return request


def sent(request: AWSRequest) -> tuple[str, dict[str, str]]:
    """What a server sees: the target and the headers."""
    assert request.url is not None
    return request.url.removeprefix(HOST), {"host": HOST.removeprefix("http://")} | {
        name.lower(): value for name, value in request.headers.items()
    }


def payload_of(headers: dict[str, str], body: bytes) -> str:
    from hashlib import sha256

    return headers.get("x-amz-content-sha256", sha256(body).hexdigest())


@given(segments=SEGMENTS, query=QUERIES, headers=HEADERS, body=BODIES, s3=st.booleans(), token=st.booleans())
def test_what_botocore_signs_is_let_in_and_nothing_else(
    segments: list[str], query: list[tuple[str, str]], headers: dict[str, str], body: bytes, s3: bool, token: bool
) -> None:
    service = "s3" if s3 else "lambda"
    request = made(segments, query, headers, body)
    keys = Credentials(SECRET.access_key, SECRET.secret_key, TOKEN if token else None)
    (S3SigV4Auth if s3 else SigV4Auth)(keys, service, REGION).add_auth(request)
    target, seen = sent(request)
    verifier, payload = Verifier(SECRET, REGION, service), payload_of(seen, body)
    assert isinstance(verifier.check("POST", target, seen, payload), Signed)
    for method, other, changed, promised in (
        ("PUT", target, seen, payload),
        ("POST", target.partition("?")[0] + "/more", seen, payload),
        ("POST", target + ("&" if "?" in target else "?") + "more=1", seen, payload),
        ("POST", target, {**seen, "host": "127.0.0.1:9001"}, payload),
        ("POST", target, {**seen, "x-amz-more": "1"}, payload),
        ("POST", target, seen, "0" * 64),
    ):
        assert isinstance(verifier.check(method, other, changed, promised), Refusal)
    stranger = Verifier(Secret(SECRET.access_key, "another"), REGION, service)
    assert _fault(stranger.check("POST", target, seen, payload)) is Fault.SIGNATURE
    assert _fault(Verifier(SECRET, REGION, "other").check("POST", target, seen, payload)) is Fault.SCOPE
    assert _fault(Verifier(SECRET, "us-west-1", service).check("POST", target, seen, payload)) is Fault.SCOPE


@given(segments=SEGMENTS, query=QUERIES, s3=st.booleans())
def test_urls_that_botocore_signs_are_let_in(segments: list[str], query: list[tuple[str, str]], s3: bool) -> None:
    request = made(segments, query, {}, b"")
    request.method = "GET"
    (S3SigV4QueryAuth if s3 else SigV4QueryAuth)(KEYS, "s3" if s3 else "sts", REGION, expires=60).add_auth(request)
    target, seen = sent(request)
    payload, verifier, now_s = UNSIGNED if s3 else EMPTY, Verifier(SECRET, REGION), time.time()
    assert isinstance(verifier.check("GET", target, seen, payload, now_s), Signed)
    assert _fault(verifier.check("GET", target, seen, payload, now_s + 70)) is Fault.EXPIRED
    assert _fault(verifier.check("GET", target, seen, payload, now_s - 1000)) is Fault.SKEWED
    assert _fault(verifier.check("DELETE", target, seen, payload)) is Fault.SIGNATURE
    assert _fault(verifier.check("GET", target.replace("X-Amz-Expires=60", "X-Amz-Expires=99"), seen, payload)) is (
        Fault.SIGNATURE
    )


@given(segments=SEGMENTS, sub=st.sampled_from(["", "uploadId=a%20b", "acl=", "x=1", "response-content-type=t%2Fx"]))
def test_urls_in_s3s_older_manner(segments: list[str], sub: str) -> None:
    path = "/" + "/".join(quote(segment, safe="~") for segment in ["bucket", *segments])
    request = AWSRequest("GET", f"{HOST}{path}" + (f"?{sub}" if sub else ""))
    HmacV1QueryAuth(KEYS, expires=60).add_auth(request)
    target, seen = sent(request)
    now_s = time.time()
    assert is_old_url(target)
    assert check_old_url(SECRET, "GET", target, seen, now_s) is None
    assert _fault(check_old_url(SECRET, "PUT", target, seen, now_s)) is Fault.SIGNATURE
    assert _fault(check_old_url(SECRET, "GET", target, seen, now_s + 99)) is Fault.EXPIRED
    assert _fault(check_old_url(SECRET, "GET", target.replace("/bucket", "/other"), seen, now_s)) is Fault.SIGNATURE
    assert _fault(check_old_url(Secret("X", "y"), "GET", target, seen, now_s)) is Fault.UNKNOWN_KEY


@given(
    body=BODIES, token=st.sampled_from([None, TOKEN]), name=st.sampled_from(["gradmux-worker", "a:live", "arn:aws:x"])
)
def test_what_our_own_fleet_signs_is_let_in(body: bytes, token: str | None, name: str) -> None:
    url = f"{HOST}/2015-03-31/functions/{quote(name, safe='')}/invocations?Qualifier=%24LATEST"
    target, now_s = Target.of(url, {"Content-Type": "application/json"}), time.time()
    keys: Any = Credentials(SECRET.access_key, SECRET.secret_key, token)
    headers = Signer("lambda", REGION).sign(target, body, keys.get_frozen_credentials(), now_s)
    seen = {name.lower(): value for name, value in headers.items()}
    assert isinstance(Verifier(SECRET, REGION, "lambda").check("POST", target.path, seen, payload_of({}, body)), Signed)


@given(head=st.text(max_size=60), stamp=st.text(max_size=20), target=st.text(max_size=40))
def test_nonsense_is_a_refusal_and_no_crash(head: str, stamp: str, target: str) -> None:
    verifier = Verifier(SECRET, REGION)
    credential = f"Credential={SECRET.access_key}/{stamp[:8]}/{REGION}/s3/aws4_request"
    nearly = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host;x-amz-date, Signature={head}"
    for authorization in (head, f"AWS4-HMAC-SHA256 {head}Signature={stamp}", nearly):
        seen = {"host": "127.0.0.1", "authorization": authorization, "x-amz-date": stamp}
        assert isinstance(verifier.check("GET", target, seen, EMPTY), Refusal)
    assert isinstance(verifier.check("GET", f"/?X-Amz-Signature={target}", {"host": "127.0.0.1"}, EMPTY), Refusal)
    if is_old_url(f"/?{target}"):
        assert check_old_url(SECRET, "GET", f"/?{target}", {}, 0.0) is not None


def test_paths_are_normalised_as_botocore_does_it() -> None:
    from botocore.utils import normalize_url_path

    for path in ("/", "//", "/a/./b/../c", "/../a", "/a/..", "/a/b/", "/a//b", "/a/.", "/...", "/a/../../b/"):
        assert without_dots(path) == normalize_url_path(path), path
    assert canonical_targets("/a?b=2&b=1&a=%7E", "s3") == ("/a\na=%7E&b=1&b=2", "/a\na=~&b=1&b=2")


# --- AWS's own examples of bodies in signed chunks -----------------------------------------------------------------

EXAMPLE = Secret("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
EXAMPLE_S = 1369353600.0
"""2013-05-24, midnight"""
SIZES = (65536, 1024, 0)


def example(payload: str, seed: str, signatures: tuple[str, ...], more: dict[str, str]) -> tuple[Signed, bytes]:
    """The documented upload of 66,560 letters "a"; its body up to the last chunk."""
    headers = {
        "host": "s3.amazonaws.com", "x-amz-date": "20130524T000000Z", "x-amz-content-sha256": payload,
        "x-amz-storage-class": "REDUCED_REDUNDANCY", "content-encoding": "aws-chunked",
        "x-amz-decoded-content-length": "66560", **more,
    }  # fmt: skip
    names = ";".join(sorted(headers))
    credential = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={credential},SignedHeaders={names},Signature={seed}"
    found = Verifier(EXAMPLE, "us-east-1", "s3").check(
        "PUT", "/examplebucket/chunkObject.txt", headers, payload, EXAMPLE_S
    )
    assert isinstance(found, Signed)
    body = b"".join(
        f"{size:x};chunk-signature={signature}\r\n".encode() + b"a" * size + b"\r\n"
        for size, signature in zip(SIZES, signatures, strict=True)
    )
    return found, body


CHUNK_SIGNATURES = (
    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
)
SEED = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
TRAILED = (
    "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
    "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
    "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
)


def test_awss_example_of_signed_chunks() -> None:
    signed, body = example(CHUNKS, SEED, CHUNK_SIGNATURES, {"content-length": "66824"})
    assert keeps_promise(CHUNKS, body, signed)
    cut = body.index(b"400;chunk")
    for wrong in (
        body.replace(b"aaa", b"aab", 1), body[:cut], body[:cut] + body[body.index(b"0;chunk") :], body[cut:], b"",
        body.replace(b"ad80", b"ad81"), body[:-90], b"66560\r\n" + b"a" * 66560,
    ):  # fmt: skip
        assert not keeps_promise(CHUNKS, wrong, signed)


def test_awss_example_of_signed_chunks_with_a_trailer() -> None:
    more = {"x-amz-trailer": "x-amz-checksum-crc32c"}
    seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"
    signed, body = example(CHUNKS_AND_TRAILER, seed, TRAILED, more)
    signature = b"d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"
    whole = (
        body.removesuffix(b"\r\n")
        + b"x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:"
        + signature
        + b"\r\n\r\n"
    )
    assert keeps_promise(CHUNKS_AND_TRAILER, whole, signed)
    assert not keeps_promise(CHUNKS_AND_TRAILER, whole.replace(b"sOO8", b"sOO9"), signed)
    assert not keeps_promise(CHUNKS_AND_TRAILER, whole.replace(b"aaa", b"aab", 1), signed)
    assert not keeps_promise(CHUNKS_AND_TRAILER, body, signed)
    assert keeps_promise(UNSIGNED_CHUNKS, re.sub(rb";chunk-signature=\w+", b"", whole), signed)


def _fault(found: Signed | Refusal | None) -> Fault | None:
    return found.fault if isinstance(found, Refusal) else None
