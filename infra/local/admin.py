"""The emulator's own paths: change delays and faults, read what happened, warm sandboxes.

No AWS client knows them; `client.py` does. Knows nothing of Lambda's API.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.faults import FaultPlan
from gradmux.infra.local.http_head import Request
from gradmux.infra.local.http_server import Response
from gradmux.infra.local.injection import DelayPlan
from gradmux.infra.local.invocation import Invoker
from gradmux.infra.local.names import ADMIN
from gradmux.infra.local.pool import Pool


@dataclass(frozen=True, slots=True)
class Admin:
    """What may be asked of a running emulator."""

    invoker: Invoker
    pool: Pool

    async def handle(self, request: Request) -> Response:
        """One admin request: GET reads, POST changes."""
        name = request.path.removeprefix(ADMIN)
        if request.method == "GET":
            answer = self.read(name)
        else:
            answer = await self.change(name, json.loads(request.body or b"{}"))
        if answer is None:
            answer = {"error": f"no such admin path: {request.path}"}
        status = 400 if "error" in answer else 200
        return Response(status, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def read(self, name: str) -> dict[str, Any] | None:
        if name == "statistics":
            return self.invoker.statistics.to_json()
        if name == "journal":
            return {"invocations": self.invoker.statistics.journal_to_json()}
        if name == "sandboxes":
            fields = ("number", "pid", "worker", "calls", "init_s")
            sandboxes = self.pool.sandboxes.values()
            return {"sandboxes": [{field: getattr(each, field) for field in fields} for each in sandboxes]}
        return None

    async def change(self, name: str, body: dict[str, Any]) -> dict[str, Any] | None:
        try:
            if name == "delays":
                self.invoker.config = dataclasses.replace(self.invoker.config, delays=DelayPlan.from_json(body))
            elif name == "faults":
                self.invoker.set_faults(FaultPlan.from_json(body))
            elif name == "warm":
                await self.pool.warm(min(body["count"], self.invoker.config.concurrency))
            else:
                return None
        except EmulatorError as error:
            return {"error": str(error)}
        return {}
