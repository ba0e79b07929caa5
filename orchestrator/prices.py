"""What workers cost: AWS's list prices in one dated table, and the arithmetic of a bill.

List prices of us-east-1 at `PRICES.date`, without free tier, discounts or data transfer. A user's own table (TOML, the
same names) replaces any of them. Knows no run. Read next: `runs/cost.py`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path

from gradmux.orchestrator.errors import ConfigError

REQUESTS = 1e6
OBJECTS = 1e3


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars."""

    date: str = "2025-10"
    """when AWS's pages said so"""
    gb_s: float = 0.0000166667
    """Lambda x86, per GB of memory and second"""
    arm_gb_s: float = 0.0000133334
    """Lambda arm64, the same"""
    million_requests: float = 0.20
    """Lambda"""
    thousand_puts: float = 0.005
    """S3: PUT, COPY, POST, LIST"""
    thousand_gets: float = 0.0004
    """S3"""

    def compute_usd(self, billed_s: float, memory_mb: int) -> float:
        """Of so many seconds of a function with so much memory."""
        return billed_s * memory_mb / 1024 * self.gb_s

    def for_arm(self) -> Prices:
        """The table for functions on arm64."""
        return replace(self, gb_s=self.arm_gb_s)

    def requests_usd(self, invocations: int) -> float:
        """Of invoking so often."""
        return invocations / REQUESTS * self.million_requests


PRICES = Prices()


def load_prices(path: Path, listed: Prices = PRICES) -> Prices:
    """The table `listed` with what the TOML file at `path` says in its place; as it is when there is no such file.

    Raises: ConfigError in one line.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return listed
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: is no table of prices: {error}") from error
    known = [field.name for field in fields(Prices)]
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"{path}: {name!r} is no price; there are {', '.join(known)}")
        wrong = not isinstance(value, str) if name == "date" else isinstance(value, bool) or not _is_price(value)
        if wrong:
            raise ConfigError(f"{path}: {name} must be {'text' if name == 'date' else 'a number, not negative'}")
    return replace(listed, **given)


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")
