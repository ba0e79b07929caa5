"""Talks to the admin paths of a running emulator.

Blocking. The other side is `admin.py`.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.faults import FaultPlan
from gradmux.infra.local.injection import DelayPlan
from gradmux.infra.local.names import ADMIN
from gradmux.infra.local.secret import Secret

NOT_OURS = "the emulator refuses this key: it is another one, or has been started anew"


@dataclass(frozen=True, slots=True)
class AdminClient:
    """One connection for each request: this is never the hot path."""

    port: int
    s3_port: int
    secret: Secret
    region: str = "us-east-1"
    timeout_s: float = 120.0

    def set_delays(self, plan: DelayPlan) -> None:
        """Replaces the delays of calls from now on."""
        self._ask("POST", "delays", plan.to_json())

    def set_faults(self, plan: FaultPlan) -> None:
        """Replaces the faults of calls, and of requests to S3, from now on."""
        self._ask("POST", "faults", plan.to_json())
        self._ask("POST", "s3", plan.to_json(), self.s3_port)

    def warm(self, count: int) -> None:
        """Starts sandboxes until there are `count`; returns when they are ready."""
        self._ask("POST", "warm", {"count": count})

    def statistics(self) -> dict[str, Any]:
        """The fields of `statistics.Statistics` but its journal; `faults` counts S3's, too."""
        counters = self._ask("GET", "statistics")
        return {**counters, "faults": counters["faults"] | self._ask("GET", "s3", port=self.s3_port)["faults"]}

    def journal(self) -> list[dict[str, Any]]:
        """Every POST so far (the last 100,000), in order of their end; fields: `statistics.JOURNAL_FIELDS`."""
        invocations: list[dict[str, Any]] = self._ask("GET", "journal")["invocations"]
        return invocations

    def sandboxes(self) -> list[dict[str, Any]]:
        """The living workers: number, pid, logical worker that they served last, calls, init_s."""
        sandboxes: list[dict[str, Any]] = self._ask("GET", "sandboxes")["sandboxes"]
        return sandboxes

    def _signed(self, method: str, name: str, body: bytes, port: int) -> dict[str, str]:
        """The headers of a signed request: our own paths ask for the key as all others do."""
        from botocore.auth import S3SigV4Auth, SigV4Auth  # slow to import, and most programs have it
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        service, auth = ("s3", S3SigV4Auth) if port == self.s3_port else ("lambda", SigV4Auth)
        request = AWSRequest(method, f"http://127.0.0.1:{port}{ADMIN}{name}", data=body)
        request.context["payload_signing_enabled"] = True
        auth(Credentials(self.secret.access_key, self.secret.secret_key), service, self.region).add_auth(request)
        return dict(request.headers.items())

    def _ask(self, method: str, name: str, body: dict[str, Any] | None = None, port: int = 0) -> dict[str, Any]:
        port = port or self.port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=self.timeout_s)
        try:
            text = b"" if body is None else json.dumps(body).encode()
            connection.request(method, ADMIN + name, text, self._signed(method, name, text, port))
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read()) if response.status != 403 else {"error": NOT_OURS}
        except OSError as error:
            raise EmulatorError(f"no emulator answers on port {port}: {error}") from error
        finally:
            connection.close()
        if "error" in answer:
            raise EmulatorError(answer["error"])
        return answer
