"""Early messages of one invocation: read from the store while it runs, and once more when it has ended.

A worker with several messages puts each but the last into the store as soon as it is ready. Knows neither HTTP nor
codes. Used by `lambda_fleet.py`; read next: `mailbox.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from gradmux.lambda_worker.contract import Request, early_key
from gradmux.orchestrator.fleets.mailbox import Mailbox
from gradmux.orchestrator.ports import Arrival

Read = Callable[[bytes], Awaitable[Arrival]]


class EarlyMessages:
    """Delivers each message of a request but the last, as an arrival that is not final, at most once."""

    def __init__(self, request: Request, mailbox: Mailbox, read: Read, deliver: Callable[[Arrival], None]) -> None:
        """Begins to look. `read` makes an arrival of a reply's bytes."""
        messages = sorted({task.message for task in request.tasks})
        self._mailbox, self._read, self._deliver = mailbox, read, deliver
        self._keys = [early_key(request, message) for message in messages[:-1]]
        self._told: set[str] = set()
        self._watching = [asyncio.create_task(self._watch(key)) for key in self._keys]

    async def finish(self) -> None:
        """The invocation has ended, well or not: what nobody has seen yet is delivered now. Raises the store's errors.

        A worker that could not put a message into the store has it in its last answer, so that there may be none.
        """
        for watching in self._watching:
            watching.cancel()
        ended = await asyncio.gather(*self._watching, return_exceptions=True)
        for trouble in ended:
            if isinstance(trouble, Exception):
                raise trouble
        for key in self._keys:
            if key not in self._told:
                body = await self._mailbox.get_now(key)
                if body is not None:
                    await self._tell(key, body)
        self._mailbox.drop(self._keys)

    async def _watch(self, key: str) -> None:
        await self._tell(key, await self._mailbox.get(key))

    async def _tell(self, key: str, body: bytes) -> None:
        """What was not answered well is no news: the invocation itself is still to end, or invoked again."""
        arrival = await self._read(body)
        self._told.add(key)
        if arrival.slots:
            self._deliver(replace(arrival, final=False, billed_s=0.0, worker_s=0.0, cold=False))
