"""Our fleet over aiohttp in place of our own HTTP client, to see what the latter is worth. For benchmarks.

Everything but the sending of one request is that of `LambdaFleet`: requests, signatures, ramp, replies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp
from yarl import URL

from gradmux.orchestrator.fleets.http_reader import Bodies, Response
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.fleets.signing import Target


class AiohttpClient:
    """As much of `HttpClient` as the fleet asks for."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.bodies = Bodies()
        self.sent_bytes = self.received_bytes = 0

    def close(self) -> None:
        """The fleet closes the session itself, and waits for it."""


class AiohttpFleet(LambdaFleet):
    """Tuned as far as aiohttp lets: no limit, no cookies, no headers of its own, URLs parsed once."""

    _http: Any

    async def _open(self) -> Any:
        self._urls: dict[str, URL] = {}
        return AiohttpClient(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._route.tls or True),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                timeout=aiohttp.ClientTimeout(total=None, sock_read=self._silence_s),
                auto_decompress=False,
            )
        )

    def close(self) -> None:
        self._background.run(self._http.session.close())
        super().close()

    async def _send(self, target: Target, headers: Mapping[str, str], body: bytes) -> Response:
        url = self._urls.get(target.path)
        if url is None:
            url = self._urls[target.path] = URL(f"{self.endpoint.url}{target.path}", encoded=True)
        async with self._http.session.post(url, headers=headers, data=body) as answer:
            received = bytearray(await answer.read())
            return Response(
                answer.status, {name.lower(): value for name, value in answer.headers.items()}, received, True
            )
