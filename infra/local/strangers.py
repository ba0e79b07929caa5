"""Who may speak to the emulator at all: programs of this machine that call it by its own name, and no web page.

A page that a browser shows can send requests to any port of this machine, but not without saying where it comes from
(Origin, Sec-Fetch-Site); one that has a name resolve to 127.0.0.1 says that name (Host). Pure; asked before any
signature is looked at, on every path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

NAME = r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?"
HOST = re.compile(NAME, re.IGNORECASE)
ORIGIN = re.compile(rf"https?://{NAME}", re.IGNORECASE)
ELSEWHERE = ("cross-site",)
"""Sec-Fetch-Site of a page from another site"""


def stranger(headers: Mapping[str, str]) -> str:
    """Why a request is not taken, in one line; empty when it may be. Header names in lower case."""
    return _why(headers.get("host"), headers.get("origin"), headers.get("sec-fetch-site"))


@lru_cache(maxsize=256)
def _why(host: str | None, origin: str | None, site: str | None) -> str:
    if host is None or HOST.fullmatch(host) is None:
        return f"Host {(host or '')[:80]!r} is not this machine's: call 127.0.0.1 or localhost"
    if origin is not None and ORIGIN.fullmatch(origin) is None:
        return f"Origin {origin[:80]!r}: no web page of another site may call the emulator"
    if site is not None and site.lower() in ELSEWHERE:
        return f"Sec-Fetch-Site {site[:20]!r}: no web page of another site may call the emulator"
    return ""
