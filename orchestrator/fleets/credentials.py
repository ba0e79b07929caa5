"""Credentials for signing, read without ever holding up the event loop."""

from __future__ import annotations

import asyncio
import time

from botocore.credentials import Credentials, ReadOnlyCredentials, RefreshableCredentials

from gradmux.orchestrator.aws import CredentialTrouble, renewing

__all__ = ["CredentialSource", "CredentialTrouble"]

RECHECK_S = 30.0
"""How old a copy may be of credentials that expire."""


class CredentialSource:
    """A copy of a session's credentials, renewed in a thread when botocore says that they expire soon."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._copy: ReadOnlyCredentials | None = None
        self._copied_s = 0.0
        self._renewing = asyncio.Lock()

    async def get(self) -> ReadOnlyCredentials:
        """Credentials that are valid now. Raises CredentialTrouble."""
        now_s = time.monotonic()
        if self._copy is not None and not (self._expire() and now_s - self._copied_s > RECHECK_S):
            return self._copy
        async with self._renewing:
            if self._copy is None or self._copied_s < now_s:  # not renewed while this call waited its turn
                self._copy = await self._renewed()
                self._copied_s = time.monotonic()
            return self._copy

    def forget(self, expired: ReadOnlyCredentials) -> None:
        """AWS calls these expired: ask for new ones next time, unless that has been done."""
        if self._copy is expired:
            self._copy = None

    def _expire(self) -> bool:
        return isinstance(self._credentials, RefreshableCredentials)

    async def _renewed(self) -> ReadOnlyCredentials:
        read = self._credentials.get_frozen_credentials  # asks the network when it must
        with renewing():
            return await asyncio.get_running_loop().run_in_executor(None, read) if self._expire() else read()
