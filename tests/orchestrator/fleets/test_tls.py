"""Calls over TLS, to an endpoint whose authority only AWS_CA_BUNDLE knows."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchestrator.errors import PreflightError
from orchestrator.fleets.boto3_fleet import Boto3Fleet
from orchestrator.fleets.calling import Function, request_body
from orchestrator.fleets.http_client import HttpClient
from orchestrator.fleets.http_dial import Dialer, Route
from orchestrator.fleets.lambda_fleet import LambdaFleet
from orchestrator.ports import Outcome
from orchestrator.store import MemoryStore
from tests.orchestrator.fleet_contract import call, take_all
from tests.orchestrator.fleets.emulated import RealFleet
from tests.orchestrator.fleets.fake_lambda import FakeLambda, PlainRequests

pytestmark = pytest.mark.usefixtures("aws_environment")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for 127.0.0.1, signed by itself, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake lambda")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return path


@pytest.fixture
def endpoint(certificate: Path) -> Iterator[FakeLambda]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with FakeLambda(tls=context) as running:
        yield running


@pytest.mark.parametrize("kind", [LambdaFleet, Boto3Fleet])
def test_the_bundle_decides_whom_to_trust(
    kind: RealFleet, endpoint: FakeLambda, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
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


def test_through_a_proxy(endpoint: FakeLambda, certificate: Path) -> None:
    """It is asked for a tunnel once for each connection, and sees nothing of what goes through."""
    context = ssl.create_default_context(cafile=certificate)
    asked: list[bytes] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", urlsplit(endpoint.url).port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while piece := await source.read(1 << 16):
            sink.write(piece)
        sink.close()

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
