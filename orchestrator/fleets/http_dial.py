"""Opens connections to one server: addresses, TLS, and the proxy that the environment asks for.

Knows nothing of what is said on a connection, besides a proxy's CONNECT. Used by `http_client.py`.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import math
import resource
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from aiohappyeyeballs import start_connection

from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.fleets.http_reader import HEAD_BYTES, BadResponse, parse_head
from gradmux.orchestrator.strangers import PROXY_WANTS_A_LOGIN

CONNECT_S = 10.0
DIALS = 256
"""Connections that are being opened at once, at most: a thousand TLS handshakes that begin together all take as long as
the last one."""
ADDRESSES_S = 60.0
"""how long the addresses of a name are kept"""
KEEPALIVE_PROBE_S = 60
"""Middle boxes forget connections that are idle for some minutes, and a function may compute for 15."""
DESCRIPTORS = 16_384
DEFAULT_PORTS = {"http": 80, "https": 443}

STAGGER_S = 0.25
"""how long an address is waited for before the next one is tried beside it (RFC 8305, section 8)"""
LATE_S = 600.0
"""how long an address comes last that others have overtaken"""
AddrInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""as getaddrinfo has it"""
P = TypeVar("P", bound=asyncio.BaseProtocol)


class NoConnection(Exception):
    """No connection could be had, so nothing was sent. One line."""


@dataclass(frozen=True, slots=True)
class Route:
    """How a server is reached."""

    origin: SplitResult
    """scheme, host and port of the server"""
    tls: ssl.SSLContext | None
    proxy: SplitResult | None = None

    @classmethod
    def to(cls, url: str, tls: ssl.SSLContext | None, proxy: str | None = None) -> Route:
        """Raises PreflightError for a proxy of a kind that is not understood."""
        through = None if proxy is None else urlsplit(proxy if "//" in proxy else f"http://{proxy}")
        if through is not None and through.scheme != "http":
            raise PreflightError(f"proxy {through.scheme}://{through.hostname}: only http:// proxies are understood")
        return cls(urlsplit(url), tls, through)

    @property
    def relayed(self) -> bool:
        """Does a proxy read our requests? TLS it only lets through."""
        return self.proxy is not None and self.tls is None

    def request_line(self, path: str) -> str:
        """Of a POST, with the headers that only the way there asks for: who relays wants the whole URL."""
        if not self.relayed:
            return f"POST {path} HTTP/1.1\r\n"
        return f"POST {self.origin.scheme}://{self.origin.netloc}{path} HTTP/1.1\r\n{self.proxy_header}"

    @property
    def proxy_header(self) -> str:
        """The credentials in the proxy's URL, as a header line; empty without any."""
        if self.proxy is None or self.proxy.username is None:
            return ""
        pair = f"{unquote(self.proxy.username)}:{unquote(self.proxy.password or '')}"
        return f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"


class Dialer:
    """Opens connections along one route."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._loop = asyncio.get_running_loop()
        self._addresses: list[AddrInfo] = []
        self._resolved_s = 0.0
        self._resolving = asyncio.Lock()
        self._turn = itertools.count()
        self._late_until_s: dict[AddrInfo, float] = {}
        self._dials = asyncio.Semaphore(DIALS)
        self._unanswered_s = -math.inf
        """when an attempt was given up last, unless a later one succeeded"""
        allow_descriptors()

    async def dial(self, make: Callable[[], P]) -> P:
        """A connection with the protocol that `make` makes. Raises NoConnection.

        Who waits for their turn does not wait for a server that has not answered others meanwhile.
        """
        asked_s = self._loop.time()
        async with self._dials:
            try:
                if self._unanswered_s > asked_s:
                    raise TimeoutError
                async with asyncio.timeout(CONNECT_S):
                    made = await self._dial(make)
            except TimeoutError as error:
                self._unanswered_s = self._loop.time()
                raise NoConnection(f"no connection within {CONNECT_S:g} s") from error
            except (OSError, BadResponse) as error:  # ssl.SSLError is an OSError
                raise NoConnection(str(error)) from error
        self._unanswered_s = -math.inf
        return made

    async def _dial(self, make: Callable[[], P]) -> P:
        route = self._route
        connected, address = await self._connect()
        name = route.origin.hostname if route.tls else None
        try:
            if route.proxy is not None and route.tls is not None:
                return await self._tunnel(connected, make, route.tls)
            _, protocol = await self._loop.create_connection(make, sock=connected, ssl=route.tls, server_hostname=name)
        except BaseException:  # a handshake that is given up is cancelled
            self._avoid(address)
            raise
        return protocol

    async def _tunnel(self, connected: socket.socket, make: Callable[[], P], tls: ssl.SSLContext) -> P:
        """Asks the proxy to let TLS through."""
        host, port = self._route.origin.hostname or "", _port(self._route.origin)
        transport, gate = await self._loop.create_connection(_Gate, sock=connected)
        try:
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            transport.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{self._route.proxy_header}\r\n".encode())
            await gate.opened
            protocol = make()
            secure = await self._loop.start_tls(transport, protocol, tls, server_hostname=host)
        except BaseException:
            transport.abort()
            raise
        assert secure is not None
        protocol.connection_made(secure)
        return protocol

    async def _connect(self) -> tuple[socket.socket, AddrInfo]:
        """A connected socket and its address: the first to answer of attempts that begin one after another (RFC 8305).

        Each call begins with another address; those that let others overtake them come last.
        """
        order = self._order(await self._find())
        made = await start_connection(
            order, happy_eyeballs_delay=STAGGER_S, loop=self._loop, socket_factory=lambda info: _socket(info[0])
        )
        reached = made.getpeername()[:2]
        won = next((index for index, info in enumerate(order) if info[4][:2] == reached), 0)
        for overtaken in order[:won]:
            self._avoid(overtaken)
        self._late_until_s.pop(order[won], None)
        return made, order[won]

    def _order(self, addresses: Sequence[AddrInfo]) -> list[AddrInfo]:
        if not addresses:
            raise OSError("the name has no address")
        first, now_s = next(self._turn) % len(addresses), self._loop.time()
        turned = [*addresses[first:], *addresses[:first]]
        return sorted(turned, key=lambda info: self._late_until_s.get(info, 0.0) > now_s)

    def _avoid(self, address: AddrInfo) -> None:
        """It did not answer in time, or not as it should: others go first for a while."""
        self._late_until_s[address] = self._loop.time() + LATE_S

    async def _find(self) -> list[AddrInfo]:
        """The addresses of the server, or of the proxy."""
        async with self._resolving:
            if not self._addresses or self._loop.time() - self._resolved_s > ADDRESSES_S:
                end = self._route.proxy or self._route.origin
                found = await self._loop.getaddrinfo(end.hostname, _port(end), type=socket.SOCK_STREAM)
                self._addresses = alternating(found)
                self._resolved_s = self._loop.time()
            return self._addresses


class _Gate(asyncio.Protocol):
    """A proxy's answer to CONNECT."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard = b""

    def data_received(self, data: bytes) -> None:
        self._heard += data
        end = self._heard.find(b"\r\n\r\n")
        if self.opened.done() or (end < 0 and len(self._heard) <= HEAD_BYTES):
            return
        try:
            status = parse_head(self._heard[: max(0, end)]).status
        except BadResponse as error:
            self.opened.set_exception(error)
            return
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            self.opened.set_result(None)
        else:
            login = " (it wants a login: http://USER:PASSWORD@HOST:PORT)" if status == PROXY_WANTS_A_LOGIN else ""
            self.opened.set_exception(OSError(f"the proxy answers {status}{login}"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(OSError("the proxy hung up"))


def alternating(found: Sequence[Any]) -> list[AddrInfo]:
    """IPv6 and IPv4 in turn, beginning with the kind that the system prefers: one of them may lead nowhere."""
    kinds: dict[int, list[AddrInfo]] = {}
    for info in found:
        kinds.setdefault(info[0], []).append(tuple(info))
    rows = itertools.zip_longest(*kinds.values())
    return [info for row in rows for info in row if info is not None]


def _port(end: SplitResult) -> int:
    return end.port or DEFAULT_PORTS[end.scheme]


def _socket(family: int) -> socket.socket:
    """A socket that sends at once, and whose connection is probed while nothing is said on it."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_PROBE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_PROBE_S)
    return made


def allow_descriptors() -> None:
    """Raises this process's soft limit of open files: every invocation in flight has a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
