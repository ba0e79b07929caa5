"""What AWS's signatures are over: path and query of a request in canonical form, and the time in it.

AWS decodes what it receives and encodes it anew; stock clients sign what they send. Both lead to the same request, so
each is a form that a signature may be over. Pure. Used by `sigv4.py`.
Source: "Create a signed AWS API request", AWS documentation.
"""

from __future__ import annotations

import calendar
import time
from functools import lru_cache
from urllib.parse import parse_qsl, quote, unquote

SAFE = "-_.~"


@lru_cache(maxsize=1024)
def canonical_targets(target: str, service: str, without: str = "") -> tuple[str, ...]:
    """ "PATH\\nQUERY" of a target as sent, in each form that may be signed. `without`: a parameter left out."""
    path, _, query = target.partition("?")
    pairs = [pair for pair in query.split("&") if pair and pair.partition("=")[0] != without]
    paths = dict.fromkeys(_paths(path or "/", service))
    queries = dict.fromkeys((_as_sent(pairs), _encoded_anew(pairs)))
    return tuple(f"{each}\n{query}" for each in paths for query in queries)


def _paths(path: str, service: str) -> tuple[str, ...]:
    """S3's keys are taken as they are; all other services normalise the path and encode it once more."""
    if service == "s3":
        return path, quote(unquote(path), safe="/" + SAFE)
    return quote(without_dots(path), safe="/" + SAFE), quote(path, safe="/" + SAFE)


def without_dots(path: str) -> str:
    """The path without empty, "." and ".." segments (RFC 3986, section 5.2.4)."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    return "/" + "/".join(kept) + ("/" if kept and path.endswith("/") else "")


def _as_sent(pairs: list[str]) -> str:
    return "&".join("=".join(pair) for pair in sorted(pair.partition("=")[::2] for pair in pairs))


def _encoded_anew(pairs: list[str]) -> str:
    decoded = (tuple(unquote(part) for part in pair.partition("=")[::2]) for pair in pairs)
    return "&".join(
        "=".join(pair) for pair in sorted(tuple(quote(part, safe=SAFE) for part in pair) for pair in decoded)
    )


@lru_cache(maxsize=64)
def seconds_of(stamp: str) -> float | None:
    """Seconds since 1970 of an X-Amz-Date; None when it is none."""
    try:
        return float(calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ")))
    except ValueError:
        return None


def parameters(target: str) -> dict[str, str]:
    """The query, decoded; of a name that comes twice, the last."""
    return dict(parse_qsl(target.partition("?")[2], keep_blank_values=True))
