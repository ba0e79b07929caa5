"""Function names as Lambda's API takes them: name, partial or full ARN, with or without `:qualifier`.

Pure. Read next: `endpoint.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ACCOUNT = "123456789012"
LATEST = "$LATEST"
VERSION = "1"
ADMIN = "/_emulator/"

NAME = re.compile(
    r"(?:arn:aws[a-z-]*:lambda:(?P<region>[a-z0-9-]+):)?(?:(?P<account>\d{12}):)?(?:function:)?"
    r"(?P<name>[a-zA-Z0-9_-]{1,64})(?::(?P<qualifier>\$LATEST|[a-zA-Z0-9_-]+))?"
)


@dataclass(frozen=True, slots=True)
class FunctionName:
    """What a caller asked for."""

    name: str
    qualifier: str | None


def parse_name(text: str, qualifier: str | None = None) -> FunctionName | None:
    """The function and qualifier of a path segment; None when the text is no function name or names two qualifiers."""
    match = NAME.fullmatch(text)
    if match is None or (qualifier and match["qualifier"] and qualifier != match["qualifier"]):
        return None
    return FunctionName(match["name"], qualifier or match["qualifier"])


def function_arn(region: str, name: str, qualifier: str | None = None) -> str:
    """The ARN of a function in the emulated account."""
    unqualified = f"arn:aws:lambda:{region}:{ACCOUNT}:function:{name}"
    return f"{unqualified}:{qualifier}" if qualifier else unqualified
