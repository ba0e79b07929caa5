"""A check is a function that raises `Differs` where an endpoint does otherwise than AWS; here they are run in order.

One check that differs, or breaks, says so and hides none of the others. Read next: `lambda_checks.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import botocore.session

from gradmux.infra.aws.door import one_line
from gradmux.orchestrator.aws import new_session


@dataclass(frozen=True, slots=True)
class Place:
    """What is looked at."""

    session: botocore.session.Session
    lambda_url: str | None
    """None: where the session's own tools go"""
    s3_url: str | None
    function: str
    """a worker of ours; empty: Lambda is left out"""
    bucket: str
    """empty: S3 is left out"""

    @classmethod
    def of_user(cls, function: str, bucket: str, lambda_url: str | None = None, s3_url: str | None = None) -> Self:
        """With the user's own credentials, as AWS's own tools find them."""
        return cls(new_session(), lambda_url, s3_url, function, bucket)


class Differs(Exception):
    """It does otherwise. One line: what was expected, and what came."""


class Skipped(Exception):
    """It cannot be tried here. One line that says why."""


class State(StrEnum):
    """What came of a check."""

    SAME = "ok"
    DIFFERS = "DIFFERS"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """One check."""

    name: str
    assumes: str
    state: State
    says: str
    took_s: float


@dataclass(frozen=True, slots=True)
class Check:
    """One assumption."""

    name: str
    assumes: str
    """in words"""
    run: Callable[[], str]
    """what was seen; raises Differs, Skipped"""


def conform(place: Place) -> Iterator[Result]:
    """Every check, as soon as it is made. Puts objects under runs/conform-*/, which it deletes."""
    from gradmux.infra.aws.conform.lambda_checks import lambda_checks
    from gradmux.infra.aws.conform.store_checks import store_checks

    if place.bucket:
        yield from _run(store_checks(place))
    if place.function:
        yield from _run(lambda_checks(place))


def _run(checks: Sequence[Check]) -> Iterator[Result]:
    for check in checks:
        began_s = time.perf_counter()
        try:
            state, says = State.SAME, check.run()
        except Skipped as reason:
            state, says = State.SKIPPED, str(reason)
        except Differs as difference:
            state, says = State.DIFFERS, str(difference)
        except Exception as error:  # whatever a foreign endpoint makes a client raise belongs into the report
            state, says = State.DIFFERS, f"{type(error).__name__}: {one_line(error)}"
        yield Result(check.name, check.assumes, state, says, time.perf_counter() - began_s)


def require(same: bool, expected: str, came: object) -> None:
    """Raises Differs unless it is so."""
    if not same:
        raise Differs(f"expected {expected}, got {' '.join(str(came).split())[:300]}")
