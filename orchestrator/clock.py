"""The time of day as AWS has it: signatures whose date is wrong are refused, and the refusal says what the time is.

Pure but for this machine's clock. Used by the fleets (`fleets/lambda_fleet.py`) and the store (`store.py`).
"""

from __future__ import annotations

import time
from datetime import datetime
from email.utils import parsedate_to_datetime

DATE_REFUSALS = ("RequestTimeTooSkewed", "RequestExpired", "InvalidSignatureException", "SignatureDoesNotMatch")
"""what AWS calls a signature whose date is wrong, among other things"""
TOLERATED_SKEW_S = 120.0
"""AWS itself tolerates 5 minutes"""


class Clock:
    """This machine's clock, until AWS has refused a signature for its date."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    @property
    def ahead_s(self) -> float:
        """How far AWS's clock is ahead of this machine's."""
        return self._ahead_s

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time() + self._ahead_s

    def corrected(self, date: str, signed_s: float) -> bool:
        """Takes over the date of a refusal, if the date that it was signed with may have been the reason.

        `date`: a Date header, or S3's ServerTime.
        """
        true_s = seconds(date)
        wrong = true_s is not None and abs(true_s - signed_s) > TOLERATED_SKEW_S
        if wrong and true_s is not None:
            self._ahead_s = true_s - time.time()
        return wrong


def seconds(date: str) -> float | None:
    """Since 1970, of a date as HTTP or as ISO 8601 writes it; None when it is neither."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            return read(date).timestamp()
        except ValueError:
            continue
    return None
