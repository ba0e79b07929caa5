"""Calls and objects over TLS, from a server whose authority only AWS_CA_BUNDLE knows; and through a proxy."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.boto3_fleet import Boto3Fleet
from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.fleets import http_dial
from gradmux.orchestrator.fleets.calling import Function, request_body
from gradmux.orchestrator.fleets.http_client import HttpClient
from gradmux.orchestrator.fleets.http_dial import Dialer, Route
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.ports import Outcome
from gradmux.orchestrator.store import MemoryStore, S3Store, StoreUnavailable
from tests.orchestrator.fleet_contract import call, take_all
from tests.orchestrator.fleets.emulated import RealFleet
from tests.orchestrator.fleets.fake_lambda import FakeLambda, PlainRequests, Posted

pytestmark = pytest.mark.usefixtures("aws_environment")

PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Issued:
    """Files in PEM."""

    bundle: Path
    """the authority's own certificate"""
    server: Path
    """the certificate of a server on 127.0.0.1, signed by the authority, and its key"""


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    folder = tmp_path_factory.mktemp("tls")
    authority, leaf = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    bundle, certificate = folder / "authority.pem", folder / "certificate.pem"
    bundle.write_bytes(signed(authority, "test authority", authority, True).public_bytes(PEM))
    secret = leaf.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate.write_bytes(signed(leaf, "fake lambda", authority, False).public_bytes(PEM) + secret)
    return Issued(bundle, certificate)


def signed(
    key: ec.EllipticCurvePrivateKey, name: str, by: ec.EllipticCurvePrivateKey, authority: bool
) -> x509.Certificate:
    """A certificate for 127.0.0.1, with all that strict clients ask for."""
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, "test authority")]
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
         "decipher_only"), False,
    )  # fmt: skip
    usage |= {"digital_signature": not authority, "key_cert_sign": authority, "crl_sign": authority}
    return (
        x509.CertificateBuilder(names[1], names[0], key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), True)
        .add_extension(x509.KeyUsage(**usage), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), False)
        .sign(by, hashes.SHA256())
    )


@pytest.fixture
def endpoint(issued: Issued) -> Iterator[FakeLambda]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.server)
    with FakeLambda(tls=context) as running:
        yield running


@pytest.mark.parametrize("kind", [LambdaFleet, Boto3Fleet])
def test_the_bundle_decides_whom_to_trust(
    kind: RealFleet, endpoint: FakeLambda, issued: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(issued.bundle))
    fleet = kind(Function("worker"), PlainRequests(), MemoryStore(), run="run", endpoint_url=endpoint.url)
    fleet.invoke([call(0, worker) for worker in range(4)])
    assert [arrival.outcome for arrival in take_all(fleet)] == [Outcome.OK] * 4
    fleet.close()

    monkeypatch.delenv("AWS_CA_BUNDLE")
    fleet = kind(Function("worker"), PlainRequests(), MemoryStore(), run="run", endpoint_url=endpoint.url)
    with pytest.raises(PreflightError, match="certificate verify failed"):
        fleet.check()
    fleet.close()
    assert len(endpoint.posts) == 4


def test_the_store_trusts_the_same(endpoint: FakeLambda, issued: Issued, monkeypatch: pytest.MonkeyPatch) -> None:
    async def give(posted: Posted) -> web.StreamResponse:
        return web.Response(body=b"content", headers={"ETag": "1", "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"})

    endpoint.behave = give
    with pytest.raises(StoreUnavailable, match=endpoint.url):
        S3Store("bucket", endpoint_url=endpoint.url, patience_s=0.1).get("key")
    assert not endpoint.posts
    monkeypatch.setenv("AWS_CA_BUNDLE", str(issued.bundle))
    assert S3Store("bucket", endpoint_url=endpoint.url, patience_s=0.1).get("key") == b"content"
    assert [post.path for post in endpoint.posts] == ["/bucket/key"]


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_bundle_that_is_none_is_told_in_one_line(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_bytes(content)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    message = re.escape(f"AWS_CA_BUNDLE (ca_bundle in the profile) = {bundle}: not a file of certificates")
    with pytest.raises(PreflightError, match=message):
        LambdaFleet(Function("worker"), PlainRequests(), MemoryStore(), run="run")
    with pytest.raises(PreflightError, match=message):
        S3Store("bucket")
    S3Store("bucket", endpoint_url="http://127.0.0.1:9")  # nobody has to prove anything there


def test_many_connections_are_opened_some_at_a_time(
    endpoint: FakeLambda, issued: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has all the time there is for one, from its turn on."""
    monkeypatch.setattr(http_dial, "DIALS", 2)
    monkeypatch.setattr(http_dial, "CONNECT_S", 2.0)
    opening, most = 0, 0

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opening, most
        await reader.readuntil(b"\r\n\r\n")
        opening += 1
        most = max(most, opening)
        await asyncio.sleep(0.2)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", urlsplit(endpoint.url).port)
        opening -= 1
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async def main() -> None:
        async with await asyncio.start_server(tunnel, "127.0.0.1", 0) as proxy:
            where = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            context = ssl.create_default_context(cafile=issued.bundle)
            client = HttpClient(Dialer(Route.to(endpoint.url, context, where)), silence_s=5.0)
            body = request_body(PlainRequests().build(call(0, 0)))
            head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            answers = await asyncio.gather(*(client.post(head, body) for _ in range(24)))
            assert [answer.status for answer in answers] == [200] * 24
            client.close()

    asyncio.run(main())
    assert most == 2


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(1 << 16):
        sink.write(piece)
    sink.close()


def test_through_a_proxy(endpoint: FakeLambda, issued: Issued) -> None:
    """It is asked for a tunnel once for each connection, and sees nothing of what goes through."""
    context = ssl.create_default_context(cafile=issued.bundle)
    asked: list[bytes] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", urlsplit(endpoint.url).port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async def main() -> None:
        async with await asyncio.start_server(tunnel, "127.0.0.1", 0) as proxy:
            where = f"http://me:secret@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            client = HttpClient(Dialer(Route.to(endpoint.url, context, where)), silence_s=5.0)
            body = request_body(PlainRequests().build(call(0, 0)))
            for _ in range(3):
                response = await client.post(
                    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body), body
                )
                assert response.status == 200
            client.close()

    asyncio.run(main())
    address = endpoint.url.removeprefix("https://").encode()
    assert asked == [
        b"CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n" % (address, address)
    ]
    assert len(endpoint.posts) == 3
