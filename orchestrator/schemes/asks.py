"""What a scheme may ask of the round loop beyond the `Scheme` protocol; most ask for nothing.

The loop looks for these protocols on the scheme it is given (`isinstance`), so a scheme defined elsewhere asks by
having the attributes. Knows no loop and no clock. Read next: `backup.py`, `pipeline_auto.py`, which ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from gradmux.orchestrator.schemes.scheme import Key


@dataclass(frozen=True, slots=True)
class Backup:
    """Invoke what is missing once more: when a share of the results is in, or after (1 + slack) times the fastest."""

    share: float | None = 0.9
    """of the invoked workers, 0..1; None: never by share"""
    slack: float | None = None
    """of the time that the fastest answer took; None: never by time"""
    times: int = 1
    """at most so often in a round; after the first time by slack alone, at its multiples"""


@runtime_checkable
class BacksUp(Protocol):
    """A scheme that has missing tasks invoked again; a policy in the run's limits goes before its own."""

    @property
    def backup(self) -> Backup:
        """When."""
        ...


@runtime_checkable
class Stretches(Protocol):
    """A scheme whose jobs may have several steps of one model, which a worker makes in a row (open plans alone)."""

    def stretch(self, model: int, left: int) -> int:
        """K, how many steps the job has that begins now, of `left` that it may have; 1 or more. `assign` is next."""
        ...


@runtime_checkable
class Patient(Protocol):
    """A scheme that says how long a round may be without what it waits for before that is invoked once more.

    For rounds that end with their first answer: what is late compared to that comes too late. A policy in the run's
    limits goes before it.
    """

    def patience_s(self, t: int) -> float | None:
        """Seconds from the dispatch of round t; asked again after each event. None: not known yet, or never."""
        ...


@runtime_checkable
class SelfNormalises(Protocol):
    """A scheme that may have estimates divided by the count that they decoded, instead of by the batch's own."""

    @property
    def self_normalised(self) -> bool:
        """Does it, with its parameters?"""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a result stands in the sum of its job: the `index`-th of `count` terms, in the order of its decode."""

    job: int
    index: int
    """from 0"""
    count: int


@runtime_checkable
class Adds(Protocol):
    """A scheme that may know, when a result arrives, that its job's decode will use it with weight 1.

    Such results are added as they come, and not held. Where `adds` is true, all decodes use results with places only,
    and an estimate uses exactly those that have come; results without a place are of no use to any decode.
    """

    @property
    def adds(self) -> bool:
        """Does it know, with its parameters?"""
        ...

    def place(self, key: Key) -> Place | None:
        """The place of a result that was heard, until its job decodes; asked again it is the same. Changes nothing."""
        ...


class Call(NamedTuple):
    """Names one invocation."""

    round: int
    worker: int
    attempt: int


@runtime_checkable
class Following(Protocol):
    """A scheme that follows the delays: it hears when each invocation began and ended, and sizes its rounds by that.

    Its rounds differ in size, so a dispatch that does not fit goes out in pieces as capacity becomes free, unless it
    has an attribute `splits` that is False. Times are those of events, seconds of the fleet's clock: the same record
    gives the same decisions.
    """

    def began(self, call: Call, at_s: float) -> None:
        """The invocation is on its way since `at_s`. Its round has been assigned."""
        ...

    def ended(self, call: Call, at_s: float, answered: bool) -> None:
        """It came back, also long after its round; `answered`: with a result, so that its delay is one."""
        ...
