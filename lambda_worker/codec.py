"""Strict JSON of typed messages: msgspec decodes, and whatever is not what the contract says becomes one clear line.

    decode(raw, MODEL, "request")   ->   the message, or ContractError: "request.tasks[0].slot: expected int, got 'x'"

Knows nothing of requests and replies: `messages.py` says which fields there are. Base64 is pybase64's, which is ten
times as fast as msgspec's own. Read `messages.py` next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
import orjson
import pybase64
from msgspec import Meta, Raw, Struct
from msgspec import inspect as types

__all__ = [
    "ContractError",
    "Message",
    "Natural",
    "NotBelowZero",
    "Positive",
    "Text",
    "VersionError",
    "base64_size",
    "cut_texts",
    "decode",
    "from_base64",
    "from_raw",
    "shown",
    "to_base64",
    "to_raw",
]

T = TypeVar("T")

MAX_INTEGER: Final = 2**63 - 1
SHOWN_CHARACTERS = 60

Natural: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
NotBelowZero: TypeAlias = Annotated[float, Meta(ge=0.0)]
"""A number; JSON has no others than finite ones."""
Text: TypeAlias = Annotated[str, Meta(min_length=1)]

PATH = re.compile(r"(.*) - at `(?:key in )?\$(.*)`", re.DOTALL)
STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
WORDS = (
    ("`str` of length >= 1", "a string that is not empty"),
    ("`str`", "a string"),
    ("`int`", "an integer"),
    ("`float`", "a number"),
    ("`bool`", "true or false"),
    ("`array`", "a list"),
    ("`object`", "an object"),
    ("`null`", "null"),
    ("| ", "or "),
)
"""msgspec's words and ours."""
FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)


class ContractError(ValueError):
    """A message that does not follow the contract. The text is one line: where, what was expected, what came."""


class VersionError(ContractError):
    """The peer speaks another version of the contract. The text names both."""


class Message(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that travels. A field that is unknown is refused: a misspelt option must not be ignored.

    A check of one's own belongs into `__post_init__` and raises ContractError; its text begins with the field's name
    and a colon, for the place of the message itself is put before it.
    """


def decode(raw: object, kind: type[T], where: str) -> T:
    """The message in JSON text, or in a JSON object that somebody else has parsed. Raises ContractError."""
    text = raw if isinstance(raw, bytes | bytearray | memoryview | str) else _as_text(raw, where)
    try:
        decoded: T = _decoder(kind).decode(text)  # type: ignore[arg-type]
        return decoded
    except msgspec.ValidationError as error:
        raise ContractError(_one_line(_complaint(str(error), text, kind, where))) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ContractError(_one_line(f"{where}: not JSON ({error})")) from error


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Made once: to look through the types of a message takes longer than to decode one."""
    return msgspec.json.Decoder(kind)


def _as_text(value: object, where: str) -> bytes:
    """As JSON, where a number that is not finite becomes null and so no number."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise ContractError(_one_line(f"{where}: not JSON ({error})")) from error


# --- what is wrong -----------------------------------------------------------------------------------------------


def _complaint(told: str, text: Any, kind: Any, where: str) -> str:
    """msgspec's words in ours: the place, what was expected, and what came."""
    found = PATH.fullmatch(told)
    said, path = found.groups() if found else (told, "")
    steps = [name or int(index) for name, index in STEP.findall(path.replace("[...]", ""))]
    place = f"{where}{path}"
    if named := FIELD.fullmatch(said):
        missing, name = named[1].startswith("missing"), shown(named[2])
        return f"{place}: field {name} is missing" if missing else f"{place}: unknown field {name}"
    if said.startswith("Invalid enum value"):
        said = f"Expected one of {', '.join(_choices(types.type_info(kind), steps))}"
    if said.startswith("Expected "):
        expected = said.removeprefix("Expected ").partition(", got")[0]
        for theirs, ours in WORDS:
            expected = expected.replace(theirs, ours)
        return f"{place}: expected {expected}, got {shown(_value(text, steps))}"
    return f"{place}.{said}" if re.match(r"[a-z_]+(\[\d+\])?(\.[a-z_]+)?: ", said) else f"{place}: {said}"


def _value(text: Any, steps: Sequence[str | int]) -> Any:
    """What stands at this place of the message."""
    try:
        value: Any = msgspec.json.decode(text)
        for step in steps:
            value = value[step]
    except (LookupError, TypeError, msgspec.DecodeError):  # what follows may be no JSON at all
        return None
    return value


def _choices(kind: types.Type, steps: Sequence[str | int]) -> list[str]:
    """The values that the place allows: the literals of its type."""
    here = [kind]
    for step in steps:
        here = [inner for each in here for inner in _inside(each, step)]
    return [str(value) for each in here for value in _literals(each)]


def _inside(kind: types.Type, step: str | int) -> list[types.Type]:
    """The types of what lies behind one step of a path."""
    if isinstance(kind, types.UnionType):
        return [inner for each in kind.types for inner in _inside(each, step)]
    if isinstance(kind, types.StructType):
        return [field.type for field in kind.fields if field.encode_name == step]
    if isinstance(kind, types.VarTupleType | types.ListType):
        return [kind.item_type]
    return []


def _literals(kind: types.Type) -> list[Any]:
    if isinstance(kind, types.UnionType):
        return [value for each in kind.types for value in _literals(each)]
    return list(kind.values) if isinstance(kind, types.LiteralType) else []


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def shown(value: object) -> str:
    """The value in one short line, for messages."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return "a huge integer"
    text = repr(value[: SHOWN_CHARACTERS + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


# --- base64 ------------------------------------------------------------------------------------------------------


def cut_texts(message: bytes | bytearray, name: str) -> tuple[bytes, dict[str, memoryview]]:
    """JSON with a mark in place of every string under `name`, and the strings by mark, without a copy.

    To parse a megabyte of base64 as text takes longer than to decode it. A string in JSON holds no bare quotes, so
    `"name":` among its bytes is a name, and the string behind it ends at the next quote (base64 escapes nothing).
    A mark is base64 too, so that it takes the place of the string in every respect.
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
        mark = f"{len(texts):08d}"
        texts[mark] = view[start + 1 : end]
        pieces += [view[at : start + 1], mark.encode()]
        at = end
    return b"".join([*pieces, view[at:]]), texts


def to_base64(raw: bytes | bytearray | memoryview) -> str:
    return pybase64.b64encode_as_string(raw)


def from_base64(text: str | bytes | memoryview, where: str) -> bytearray:
    """Decodes strictly (a character outside the alphabet is an error), into writable memory."""
    try:
        return pybase64.b64decode_as_bytearray(text, validate=True)
    except ValueError as error:  # binascii.Error is one
        raise ContractError(f"{where}: not base64 ({error})") from error


def to_raw(content: bytes | bytearray | memoryview) -> Raw:
    """Bytes as a JSON string that is made once, however often it travels."""
    return Raw(b'"%s"' % pybase64.b64encode(content))


def from_raw(raw: Raw, where: str) -> bytearray:
    """The inverse of `to_raw`."""
    text = bytes(raw)
    if len(text) < 2 or text[:1] != b'"':
        raise ContractError(f"{where}: expected base64, got {shown(text)}")
    return from_base64(text[1:-1], where)


def base64_size(size_bytes: int) -> int:
    """The number of characters that base64 makes of so many bytes."""
    return 4 * ((size_bytes + 2) // 3)
