"""Strict readers of JSON objects: one clear line for anything that is not what the contract says.

Knows nothing of requests and replies; `contract.py` says which fields there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pybase64

__all__ = ["ContractError", "Fields", "VersionError", "base64_size", "cut_texts", "from_base64", "to_base64"]

MAX_INTEGER = 2**63 - 1
SHOWN_CHARACTERS = 60
NOTHING_CUT: Mapping[str, memoryview] = {}


class ContractError(ValueError):
    """A message that does not follow the contract. The text is one line: where, what was expected, what came."""


class VersionError(ContractError):
    """The peer speaks another version of the contract. The text names both."""


class Fields:
    """One JSON object being read: every field is taken once, with its type, and `done()` refuses what is left."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise ContractError(f"{where}: expected an object, got {shown(value)}")
        self._left: dict[Any, Any] = dict(value)
        self.where = where

    def done(self) -> None:
        """Refuses fields that nobody asked for: a misspelt option must not be ignored."""
        if self._left:
            raise ContractError(f"{self.where}: unknown field {', '.join(sorted(map(shown, self._left)))}")

    def wrong(self, name: str, expected: str, value: object) -> ContractError:
        return ContractError(f"{self.where}.{name}: expected {expected}, got {shown(value)}")

    def take(self, name: str) -> Any:
        """The raw value of a field that must be there."""
        try:
            return self._left.pop(name)
        except KeyError:
            raise ContractError(f"{self.where}: field {name!r} is missing") from None

    def has(self, name: str) -> bool:
        """Whether the field is there and not null. A null is taken, so that `done()` accepts it."""
        if self._left.get(name) is None:
            self._left.pop(name, None)
            return False
        return True

    def text(self, name: str, empty: bool = False) -> str:
        """A string, not empty unless `empty`, without lone surrogates (which have no UTF-8 and so cannot go on)."""
        value = self.take(name)
        if not isinstance(value, str) or not (value or empty):
            raise self.wrong(name, "a string" if empty else "a string that is not empty", value)
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise self.wrong(name, "Unicode text", value)
        return value

    def integer(self, name: str, minimum: int = 0) -> int:
        """A whole number from `minimum` to 2^63 - 1; true and false are not numbers."""
        value = self.take(name)
        if type(value) is not int or not minimum <= value <= MAX_INTEGER:
            raise self.wrong(name, f"an integer from {minimum} to 2^63-1", value)
        return value

    def number(self, name: str, minimum: float = -math.inf) -> float:
        """A finite number, not below `minimum`."""
        value = finite(self.take(name))
        if value is None or value < minimum:
            bound = "" if minimum == -math.inf else f", {minimum:g} or more"
            raise ContractError(f"{self.where}.{name}: expected a finite number{bound}")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of finite numbers."""
        values = [finite(value) for value in self.items(name)]
        if None in values:
            raise ContractError(f"{self.where}.{name}: expected finite numbers only")
        return tuple(value for value in values if value is not None)

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.take(name)
        if not isinstance(value, str) or value not in allowed:
            raise self.wrong(name, "one of " + ", ".join(allowed), value)
        return value

    def binary(self, name: str, cut: Mapping[str, memoryview] = NOTHING_CUT) -> bytearray:
        """The bytes of a base64 string, in writable memory, so that arrays over it need no copy.

        `cut`: the strings that `cut_texts` took out of the message.
        """
        value = self.take(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a base64 string", value)
        return from_base64(cut.get(value, value), f"{self.where}.{name}")

    def items(self, name: str) -> list[Any]:
        value = self.take(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list", value)
        return value

    def child(self, name: str) -> Fields:
        return Fields(self.take(name), f"{self.where}.{name}")

    def children(self, name: str) -> list[Fields]:
        return [Fields(item, f"{self.where}.{name}[{index}]") for index, item in enumerate(self.items(name))]


def finite(value: object) -> float | None:
    """The value as a float; None when it is no number, or not finite."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if type(value) is not int:
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond 1e308
        return None
    return number if math.isfinite(number) else None


def shown(value: object) -> str:
    """The value in one short line, for messages."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return "a huge integer"
    text = repr(value[: SHOWN_CHARACTERS + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def cut_texts(message: bytes | bytearray, name: str) -> tuple[bytes, dict[str, memoryview]]:
    """JSON with a mark in place of every string under `name`, and the strings by mark, without a copy.

    To parse a megabyte of base64 as text takes longer than to decode it. A string in JSON holds no bare quotes, so
    `"name":` among its bytes is a name, and the string behind it ends at the next quote (base64 escapes nothing).
    """
    token, view = f'"{name}":'.encode(), memoryview(message)
    pieces, texts, at = list[bytes | memoryview](), dict[str, memoryview](), 0
    while (found := message.find(token, at)) >= 0:
        start = found + len(token)
        start += message[start : start + 1] == b" "
        end = message.find(b'"', start + 1)
        if message[start : start + 1] != b'"' or end < 0:
            pieces.append(view[at:start])
            at = start
            continue
        mark = f"#{len(texts)}"  # which is no base64
        texts[mark] = view[start + 1 : end]
        pieces += [view[at : start + 1], mark.encode()]
        at = end
    return b"".join([*pieces, view[at:]]), texts


def to_base64(raw: bytes | bytearray | memoryview) -> str:
    return pybase64.b64encode_as_string(raw)


def from_base64(text: str | memoryview, where: str) -> bytearray:
    """Decodes strictly (a character outside the alphabet is an error), into writable memory."""
    try:
        return pybase64.b64decode_as_bytearray(text, validate=True)
    except ValueError as error:  # binascii.Error is one
        raise ContractError(f"{where}: not base64 ({error})") from error


def base64_size(size_bytes: int) -> int:
    """The number of characters that base64 makes of so many bytes."""
    return 4 * ((size_bytes + 2) // 3)
