"""The type of every option that takes a number with a fraction: finite, within bounds.

click's own float types let `nan` and `inf` through, and each bound, too, since `nan` compares with nothing. Knows no
command. Read next: `options.py`.
"""

from __future__ import annotations

import math
from typing import Any

import click

TIMEOUT_HELP = "Seconds until a call without answer is found to have failed, where PROFILE states no delay for it."


class FiniteFloat(click.FloatRange):
    """A float from `min` on, if it has one; `nan` and infinities are refused as a value outside the range is."""

    def __init__(self, min: float | None, max: float | None = None, *, min_open: bool = False) -> None:
        super().__init__(min, max, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Fails (one line, exit code 2) for any other value."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class HourUsd(click.ParamType[float]):
    """V, what an hour of waiting is worth in US dollars: a number from 0 on, or `inf`."""

    name = "usd|inf"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; infinity for `inf`. Fails (one line, exit code 2) for any other value."""
        try:
            usd = float(value)
        except ValueError:
            usd = math.nan
        if not usd >= 0:
            self.fail(f"{value!r} is no amount of dollars: give a number from 0 on, or inf.", param, ctx)
        return usd
