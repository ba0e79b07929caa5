"""Answers that are not AWS's: a proxy, a captive portal or a load balancer has spoken in its place. In one line.

Pure; knows neither Lambda nor S3, both of which answer in JSON or XML, never in HTML, and never redirect to a page.
Used by `fleets/replies.py` and `s3_cause.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TITLE = re.compile(r"(?is)<title[^>]*>(.*?)</title>")
TAG = re.compile(r"(?s)<(script|style)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>")
PAGE = re.compile(rb"(?i)^(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head|body|title|center|h1|meta|script)\b")
STATUS = re.compile(r"status code: (\d{3})|^(\d{3}) |\b([1-5]\d\d) [A-Z][a-z]+ ?[A-Z]?[a-z]*: <")
"""in the text of an error"""
SHOWN = 80
HEAD_BYTES = 4096
"""What is looked at of a page."""
PROXY_WANTS_A_LOGIN = 407
SERVER_ERRORS = 500
PORTAL = (
    "a proxy or a captive portal on the way answers in its place: log in there, or correct HTTPS_PROXY and NO_PROXY"
)
GATEWAY = "a proxy or gateway on the way answers in its place: correct HTTPS_PROXY and NO_PROXY, or try again later"


def is_page(headers: Mapping[str, str], body: bytes | bytearray | memoryview) -> bool:
    """Is it a web page, as it says, or as it looks where it says nothing? `headers` are named in lower case."""
    kind = headers.get("content-type", "text/").lower()
    if kind.startswith(("text/html", "application/xhtml")):
        return True
    return kind.startswith("text/") and PAGE.match(bytes(body[:HEAD_BYTES])) is not None


def page_text(body: bytes | bytearray | memoryview | str) -> str:
    """What a page says, in a few words: its title, else its text without the tags."""
    text = body if isinstance(body, str) else bytes(body[:HEAD_BYTES]).decode("utf-8", "replace")
    found = TITLE.search(text)
    words = " ".join((found[1] if found and found[1].strip() else TAG.sub(" ", text)).split())
    return words if len(words) <= SHOWN else f"{words[: SHOWN - 3]}..."


def told_of(status: int, headers: Mapping[str, str], body: bytes | bytearray | memoryview, expected: str) -> str:
    """A stranger's answer in one line: what came in the place of `expected`, and what to do."""
    if status == PROXY_WANTS_A_LOGIN:
        return "HTTP 407: the proxy wants a login: put it into HTTPS_PROXY (http://USER:PASSWORD@HOST:PORT)"
    what = f"HTTP {status}" if status else ""
    if place := headers.get("location", ""):
        what += f" to {place[:SHOWN]}"
    elif is_page(headers, body):
        what += f"{' and ' if what else ''}a web page ({page_text(body)!r})"
    elif words := page_text(body):
        what += f" ({words!r})"
    return f"{what} instead of {expected}: {GATEWAY if status >= SERVER_ERRORS else PORTAL}"


def page_told(text: str, expected: str = "AWS's answer") -> str:
    """One line about a web page that an error's text holds instead of what was expected; empty where it holds none."""
    start = text.find("<")
    if start < 0 or not PAGE.match(text[start:].encode()):
        return ""
    found = STATUS.search(text)
    status = int(next(filter(None, found.groups()))) if found else 0
    return told_of(status, {"content-type": "text/html"}, text[start:].encode(), expected)
