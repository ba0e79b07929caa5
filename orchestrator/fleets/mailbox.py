"""What workers put into the store for the client: waited for by looking, ever less often, at a bounded price.

Everything of one round lies in one folder. A folder is looked at after pauses of a fixed part of the time since
something was last expected there, so that looks grow with the logarithm of a round's duration. Few keys are asked for
one by one (a GET costs a twelfth of a LIST), many by listing the folder. Knows neither HTTP nor what the bytes mean.
Runs in one event loop; the store is asked in threads. Used by `lambda_fleet.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from gradmux.orchestrator.errors import GradmuxError
from gradmux.orchestrator.ports import Store

T = TypeVar("T")

PAUSE_SHARE = 0.05
"""of the time since something was expected last"""
SHORTEST_S, LONGEST_S = 0.02, 5.0
FEW = 12
"""So many keys are asked for one by one."""
THREADS = 16


class Mailbox:
    """Objects that will be in a store some time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mailbox")
        self._folders: dict[str, Folder] = {}

    async def get(self, key: str) -> bytes:
        """Waits for an object. Raises what the store raises, besides FileNotFoundError."""
        name = folder_of(key)
        folder = self._folders.get(name)
        if folder is None or folder.looking.done():
            folder = self._folders[name] = Folder(name, self._look)
        try:
            return await folder.get(key)
        finally:
            if self._folders.get(name) is folder and folder.empty:
                del self._folders[name]

    async def get_now(self, key: str) -> bytes | None:
        """The object, if it is there."""
        return (await self._get([key])).get(key)

    def drop(self, keys: Sequence[str]) -> None:
        """Has objects removed that were read, soon. What cannot be removed stays until the run is cleaned up."""
        self._threads.submit(self._delete, keys)

    def close(self) -> None:
        for folder in self._folders.values():
            folder.looking.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _look(self, folder: str, keys: Sequence[str]) -> dict[str, bytes]:
        """Those of the keys that are there."""
        if len(keys) > FEW:
            present = set(await self._ask(lambda: self._store.list(folder)))
            keys = [key for key in keys if key in present]
        return await self._get(keys)

    async def _get(self, keys: Sequence[str]) -> dict[str, bytes]:
        bodies = await asyncio.gather(*(self._ask(partial(self._found, key)) for key in keys))
        return {key: body for key, body in zip(keys, bodies, strict=True) if body is not None}

    def _delete(self, keys: Sequence[str]) -> None:
        with contextlib.suppress(GradmuxError):
            self._store.delete(keys)

    def _found(self, key: str) -> bytes | None:
        try:
            return self._store.get(key)
        except FileNotFoundError:
            return None

    async def _ask(self, request: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, request)


class Folder:
    """What is expected in one folder, and the task that looks for it."""

    def __init__(self, name: str, look: Callable[[str, Sequence[str]], Awaitable[dict[str, bytes]]]) -> None:
        self._name, self._look = name, look
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._since_s = self._loop.time()
        self.looking = self._loop.create_task(self._keep_looking())

    @property
    def empty(self) -> bool:
        """Does nobody wait?"""
        return not self._waiting

    async def get(self, key: str) -> bytes:
        assert key not in self._waiting, f"{key} is waited for already"
        self._since_s = self._loop.time()
        self._waiting[key] = self._loop.create_future()
        try:
            return await self._waiting[key]
        finally:
            del self._waiting[key]

    async def _keep_looking(self) -> None:
        """Until nobody waits. Trouble with the store is everybody's who waits."""
        await asyncio.sleep(0)
        while self._waiting:
            await asyncio.sleep(pause_s(self._loop.time() - self._since_s))
            try:
                found = await self._look(self._name, tuple(self._waiting))
            except Exception as error:
                for waiting in self._waiting.values():
                    if not waiting.done():
                        waiting.set_exception(error)
                return
            for key, body in found.items():
                if key in self._waiting and not self._waiting[key].done():
                    self._waiting[key].set_result(body)
            await asyncio.sleep(0)  # let those go who have got something


def folder_of(key: str) -> str:
    """Where the objects of all invocations of a round lie; each invocation has a folder of its own in it."""
    return key.rsplit("/", 2)[0] + "/"


def pause_s(age_s: float) -> float:
    """Between two looks, when something was expected `age_s` ago."""
    return min(LONGEST_S, max(SHORTEST_S, PAUSE_SHARE * age_s))
