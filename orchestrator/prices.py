"""What workers cost: AWS's list prices in one dated table, and the arithmetic of a whole bill.

List prices of us-east-1 at `PRICES.date`, without free tier and discounts. The 100 GB that an account may send out of
AWS each month for nothing are not taken off: how many of them are left is not known. A user's own table (TOML, the same
names) replaces any price. Knows no run. Read next: `runs/cost.py`.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Self

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.worth import Worth

REQUESTS = 1e6
OBJECTS = 1e3
GB = 1e9
"""bytes, as data transfer counts them"""
FREE_TMP_MB = 512
"""of /tmp, which every function has"""


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
    out_gb: float = 0.09
    """data out of AWS to the Internet, per GB (1e9 bytes): what workers and S3 send to a client elsewhere"""
    tmp_gb_s: float = 0.0000000309
    """Lambda's /tmp above 512 MB, per GB and second"""

    @classmethod
    def free(cls) -> Prices:
        """The table of a backend that costs nothing: every price is 0."""
        names = (each.name for each in fields(cls) if each.name != "date")
        return cls(date="never", **dict.fromkeys(names, 0.0))

    def compute_usd(self, billed_s: float, memory_mb: int) -> float:
        """Of so many seconds of a function with so much memory."""
        return billed_s * memory_mb / 1024 * self.gb_s

    def for_arm(self) -> Prices:
        """The table for functions on arm64."""
        return replace(self, gb_s=self.arm_gb_s)

    def requests_usd(self, invocations: float) -> float:
        """Of invoking so often."""
        return invocations / REQUESTS * self.million_requests


PRICES = Prices()


@dataclass(frozen=True, slots=True)
class Usage:
    """What is billed. All of it adds up."""

    billed_s: float = 0.0
    """of all workers, their starts included"""
    invocations: float = 0.0
    puts: float = 0.0
    """S3 requests that store or list"""
    gets: float = 0.0
    """S3 requests that read"""
    out_bytes: float = 0.0
    """sent out of AWS to the client"""

    def __add__(self, other: Usage) -> Usage:
        mine, theirs = asdict(self), asdict(other)
        return Usage(**{name: mine[name] + theirs[name] for name in mine})

    def times(self, factor: float) -> Usage:
        """So many of them."""
        return Usage(**{name: factor * amount for name, amount in asdict(self).items()})


@dataclass(frozen=True, slots=True)
class Items:
    """A bill, line by line, US dollars."""

    compute_usd: float = 0.0
    """GB-seconds of workers"""
    requests_usd: float = 0.0
    """invocations"""
    s3_usd: float = 0.0
    """requests to S3"""
    out_usd: float = 0.0
    """data out of AWS"""
    tmp_usd: float = 0.0
    """/tmp above 512 MB"""

    @classmethod
    def of(cls, usage: Usage, prices: Prices, memory_mb: int, tmp_mb: int = FREE_TMP_MB) -> Self:
        """What it comes to, for functions of so much memory and /tmp."""
        beyond_gb = max(0, tmp_mb - FREE_TMP_MB) / 1024
        return cls(
            compute_usd=prices.compute_usd(usage.billed_s, memory_mb),
            requests_usd=prices.requests_usd(usage.invocations),
            s3_usd=(usage.puts * prices.thousand_puts + usage.gets * prices.thousand_gets) / OBJECTS,
            out_usd=usage.out_bytes / GB * prices.out_gb,
            tmp_usd=usage.billed_s * beyond_gb * prices.tmp_gb_s,
        )

    @property
    def usd(self) -> float:
        """All of it."""
        return self.compute_usd + self.requests_usd + self.s3_usd + self.out_usd + self.tmp_usd

    def to_dict(self) -> dict[str, float]:
        """For JSON: each line, and the sum."""
        return {**asdict(self), "usd": self.usd}


def worth_of(
    prices: Prices, memory_mb: int, hour_usd: float, call: Usage = Usage(invocations=1), state: Usage | None = None
) -> Worth:
    """What a scheme that sizes its jobs needs. `call`: of one invocation but its seconds; `state`: of a stretch's."""
    return Worth(
        hour_usd=hour_usd,
        held_usd=prices.compute_usd(1.0, memory_mb),
        call_usd=Items.of(call, prices, memory_mb).usd,
        state_usd=Items.of(call if state is None else state, prices, memory_mb).usd,
    )


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
    for name, given_price in given.items():
        if name not in known:
            raise ConfigError(f"{path}: {name!r} is no price; there are {', '.join(known)}")
        is_text, number = isinstance(given_price, str), not isinstance(given_price, bool) and _is_price(given_price)
        if not (is_text if name == "date" else number):
            raise ConfigError(f"{path}: {name} must be {'text' if name == 'date' else 'a number, not negative'}")
    return replace(listed, **given)


def _is_price(given: object) -> bool:
    return isinstance(given, int | float) and 0 <= given < float("inf")
