"""JSON in and out of the handler: what AWS's runtime writes, byte for byte, without its 6 ms for a megabyte of base64.

Used by `worker.py`. Knows nothing of sockets.
"""

from __future__ import annotations

from typing import Any

import orjson
from awslambdaric.lambda_runtime_exception import FaultException
from awslambdaric.lambda_runtime_marshaller import Encoder
from simplejson.raw_json import RawJSON  # type: ignore[import-untyped]

LONG_TEXT = 4096
MARK = b"\0"
"""stands for a long text; in JSON control characters are escaped, so that nothing else looks like it"""
CUT = RawJSON(MARK.decode())


class Marshaller:
    """Stands for `awslambdaric`'s LambdaMarshaller."""

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._refused: str | None = None

    def unmarshal_request(self, request: bytes, content_type: str = "application/json") -> Any:
        """The event; an empty payload is an empty event. What is no JSON is remembered for `take_refusal`."""
        try:
            return orjson.loads(request) if request else {}
        except orjson.JSONDecodeError as error:
            self._refused = str(error)
            raise FaultException(FaultException.UNMARSHAL_ERROR, f"Unable to unmarshal input: {error}", None) from error

    def marshal_response(self, response: Any) -> tuple[str | bytes, str]:
        """The reply as AWS's runtime encodes it. Raises FaultException for what is no JSON."""
        if isinstance(response, bytes):
            return response, "application/unknown"
        texts: list[bytes] = []
        try:
            encoded = self._encoder.encode(with_texts_cut(response, texts))
        except (TypeError, ValueError, RecursionError) as error:
            message = f"Unable to marshal response: {error}"
            raise FaultException(FaultException.MARSHAL_ERROR, message, None) from error
        return joined(encoded.encode(), texts) if texts else encoded, "application/json"

    def take_refusal(self) -> str | None:
        """Why the last payload was no JSON, once; Lambda's front end refuses such a call with 400."""
        refused, self._refused = self._refused, None
        return refused


def with_texts_cut(value: Any, texts: list[bytes]) -> Any:
    """The same value with a mark for each long ASCII string, whose JSON goes to `texts`, past AWS's slow encoder.

    What is no plain dict, list or tuple is the encoder's affair (it writes named tuples as objects, for example).
    """
    kind = type(value)
    if kind is dict:
        return {key: with_texts_cut(item, texts) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [with_texts_cut(item, texts) for item in value]
    if kind is str and len(value) > LONG_TEXT and value.isascii():
        texts.append(orjson.dumps(value))
        return CUT
    return value


def joined(encoded: bytes, texts: list[bytes]) -> bytes:
    """JSON with the texts in place of their marks."""
    pieces = encoded.split(MARK)
    assert len(pieces) == len(texts) + 1, "JSON holds no bare control characters but ours"
    parts = [part for pair in zip(pieces, texts, strict=False) for part in pair]
    return b"".join([*parts, pieces[-1]])
