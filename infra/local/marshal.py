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
        try:
            return self._encoder.encode(with_long_texts_encoded(response)), "application/json"
        except (TypeError, ValueError, RecursionError) as error:
            message = f"Unable to marshal response: {error}"
            raise FaultException(FaultException.MARSHAL_ERROR, message, None) from error

    def take_refusal(self) -> str | None:
        """Why the last payload was no JSON, once; Lambda's front end refuses such a call with 400."""
        refused, self._refused = self._refused, None
        return refused


def with_long_texts_encoded(value: Any) -> Any:
    """The same value with long ASCII strings already encoded, so that AWS's encoder copies instead of scanning them."""
    if isinstance(value, dict):
        return {key: with_long_texts_encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_long_texts_encoded(item) for item in value]
    if isinstance(value, str) and len(value) > LONG_TEXT and value.isascii():
        return RawJSON(orjson.dumps(value).decode())
    return value
