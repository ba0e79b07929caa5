"""When rounds close, and what counts after that, in the words of users: the one place where such a key is added.

A field of `Closing` is a key of a job file's section [scheme] (`config.py`), an option of `gradmux simulate` and `tune`
(`cli/closing.py`), and part of what `TuneOptions` and `AutoJob` are told. Knows neither pydantic nor click. Read next:
`policies.py`, which makes of it what the loop obeys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_type_hints

from gradmux.orchestrator.errors import ConfigError

TIMEOUT_S = 60.0
"""seconds that a function may run where nothing is said, as in a job file: then a call without answer is over"""


def key(
    default: Any, meaning: str, *, least: float | None = None, most: float | None = None, what: str = "a number"
) -> Any:
    """A field of `Closing`: its default, what the documentation says of it, its bounds, what it measures."""
    return field(default=default, metadata={"meaning": meaning, "least": least, "most": most, "what": what})


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Raises ConfigError for what cannot be."""

    wait: Literal["earliest", "mu"] = key(
        "earliest",
        "when a round closes: once the job that is due decodes and all others still can, or by the papers' rule mu",
    )
    mu: float | None = key(
        None, "rule mu: a worker is a straggler after (1 + mu) times the time of the round's fastest answer", least=0
    )
    wait_out: Literal["until", "all"] = key(
        "until",
        "rule mu, when the pattern leaves the scheme's model: admit answers until it conforms, or wait for all",
    )
    straggler_model: Literal["bursty", "arbitrary", "either"] | None = key(
        None, "rule mu: the patterns that the scheme is to tolerate; not given: the widest model that it declares"
    )
    in_flight_cap: float | None = key(
        None,
        "share of n that may still run when a round closes by rule earliest",
        least=0,
        most=1,
        what="a share of the workers",
    )
    harvest_late: bool = key(True, "an answer that comes when its round has closed counts until its job is due")

    def __post_init__(self) -> None:
        for name, told in keys(type(self)).items():
            told.check(name, getattr(self, name))
        if self.wait == "mu" and self.mu is None:
            raise ConfigError('wait = "mu" needs mu, for example mu = 1.0')
        if self.wait == "mu" and self.in_flight_cap is not None:
            raise ConfigError(
                'wait = "mu" closes rounds whatever is in flight: leave out in_flight_cap, or wait and mu'
            )


@dataclass(frozen=True, slots=True)
class ClosingKey:
    """One of them."""

    kind: Any
    """its type, `X | None` where it may be left out"""
    default: Any
    meaning: str
    """one line"""
    least: float | None
    most: float | None
    what: str
    """what it measures, for messages"""

    def check(self, name: str, given: float | None) -> None:
        """Raises ConfigError for a number outside of the bounds, and for nan."""
        low, high = self.least, self.most
        if given is None or (low is None and high is None):
            return
        if not ((low is None or given >= low) and (high is None or given <= high)):
            told = [f"at least {low:g}" if low is not None else "", f"at most {high:g}" if high is not None else ""]
            bounds = f"{low:g} to {high:g}" if all(told) else "".join(told)
            raise ConfigError(f"{name} is {given}, but must be {self.what}: {bounds}")


def keys(kind: type[Closing] = Closing) -> Mapping[str, ClosingKey]:
    """Every key, by name, in the order of documentation."""
    hints = get_type_hints(kind)
    return {each.name: ClosingKey(hints[each.name], each.default, **each.metadata) for each in fields(kind)}
