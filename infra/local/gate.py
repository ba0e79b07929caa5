"""The run slots: as many handlers compute at once as there are processors, the others wait in order.

Without it 256 handlers on 2 cores would each seem slow; with it each runs at full speed, for the same total.
Injected delays wait outside. Used by `invocation.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Gate:
    """A fair semaphore that hands its slot to the next in line without waking a task for nothing."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Returns when this caller holds a slot."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def release(self) -> None:
        """Gives the slot to the one who has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
