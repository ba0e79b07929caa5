"""The key of one emulator: made up at its start, known to the run's own processes and to nobody else.

It travels through pipes, through the environment of children and in files that only their owner may read; never on a
command line. Knows no HTTP. Checked by `sigv4.py`.
"""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass, field
from typing import Self

ACCESS_KEY = string.ascii_uppercase + string.digits
TOKEN = "session-of-the-emulator"
"""Goes along in the variables, so that a token of the user's own shell does not; no secret, and may be left out."""


@dataclass(frozen=True, slots=True)
class Secret:
    """An access key id and what proves that one has it."""

    access_key: str
    secret_key: str = field(repr=False)

    @classmethod
    def make(cls) -> Self:
        """A new one: 20 characters as AWS's ids have, and 240 bits."""
        return cls("LOCAL" + "".join(secrets.choice(ACCESS_KEY) for _ in range(15)), secrets.token_urlsafe(30))

    def to_json(self) -> dict[str, str]:
        return {"access_key": self.access_key, "secret_key": self.secret_key}

    def variables(self) -> dict[str, str]:
        """AWS's own variables for a client, or for a child that checks."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": TOKEN,
        }
