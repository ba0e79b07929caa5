"""What `conform` found, as lines for people and as a document that can be sent to us: it holds no credentials."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from gradmux.infra.aws.conform.checks import Place, Result, State
from gradmux.orchestrator.errors import ConfigError

LIBRARIES = ("gradmux", "boto3", "botocore", "obstore", "moto")


def lines(results: Iterable[Result]) -> list[str]:
    """One line a check."""
    return [line(result) for result in results]


def line(result: Result) -> str:
    """One check."""
    return f"{result.state.value:7} {result.name}: {result.says}" + (
        f" (assumed: {result.assumes})" if result.state is State.DIFFERS else ""
    )


def document(place: Place, results: Sequence[Result]) -> dict[str, Any]:
    """All of it, with what it was run with."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "endpoints": {"lambda": place.lambda_url, "s3": place.s3_url},
        "function": place.function,
        "versions": {name: version(name) for name in LIBRARIES},
        "python": platform.python_version(),
        "checks": [asdict(result) for result in results],
        "differs": [result.name for result in results if result.state is State.DIFFERS],
    }


def write(document: Mapping[str, Any], path: Path) -> None:
    """The document as JSON. Raises: ConfigError when it cannot be written."""
    try:
        path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
