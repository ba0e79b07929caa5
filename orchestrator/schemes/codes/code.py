"""What a code is: who computes which chunks of one job, which answers suffice, and the weights that combine them.

One `Code` serves a whole run; `draw` makes the `Codeword` of one job; a `Reception` collects the answers to it.
Counting is cheap and happens on every arrival; solving happens in `decode` alone. Knows neither rounds nor schemes.
All chunks of a code are equal: 1/chunks of what it encodes. Read next: `fractional.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from gradmux.orchestrator.errors import GradmuxError
from gradmux.orchestrator.schemes.scheme import MAX_RESIDUAL, BoolArray

NOISY = 100.0
"""Amplification of a decode that a run warns of: two digits of every result are lost."""


def noise_warning(amplification: float) -> str:
    """What to say beside a result whose decodes amplified rounding so much; empty up to NOISY."""
    if not amplification > NOISY:
        return ""
    return (
        f"a decode amplified rounding {amplification:,.0f} times: use code = fractional, or tolerate fewer stragglers"
    )


def noise(amplification: float) -> list[tuple[str, str]]:
    """The same as a labelled line, if there is one."""
    warning = noise_warning(amplification)
    return [("warning", warning)] if warning else []


Row: TypeAlias = tuple[tuple[int, ...], tuple[float, ...]]
"""What one worker sends: its chunks and their coefficients."""


@dataclass(frozen=True, slots=True)
class Combination:
    """How to combine the answers to one codeword: sum over workers of weights[worker] * answer.

    The order of `weights` is canonical: by chunk, never by arrival.
    """

    weights: dict[int, float]
    residual: float
    """max over chunks of |sum_i a_i B[i, chunk] - 1|"""
    amplification: float
    """sqrt(sum_i a_i^2 ||B_i||^2 / n)"""
    missing: float
    """||a^T B - 1||^2 / chunks: the share that an estimate lacks"""

    def checked(self, code: str) -> Combination:
        """This, if it is exact up to rounding. Raises: GradmuxError when float64 was not enough."""
        if not self.residual <= MAX_RESIDUAL:
            raise GradmuxError(
                f"the {code} code lost the gradient to rounding (residual {self.residual:.1e}, amplification "
                f"{self.amplification:.1e}): use code = fractional, or tolerate fewer stragglers"
            )
        return self


class Reception(Protocol):
    """The answers to one codeword so far."""

    @property
    def complete(self) -> bool:
        """Do they suffice to decode?"""
        ...

    @property
    def received(self) -> BoolArray:
        """(workers,) who has answered; read only."""
        ...

    @property
    def needed(self) -> int:
        """The fewest further answers that complete it; 0 when complete."""
        ...

    def add(self, worker: int) -> bool:
        """Takes an answer; False when no decode will use it. A second answer of one worker changes nothing."""
        ...

    def helpful(self) -> list[int]:
        """Missing workers whose answer would help, best first (then lowest first): the first `needed` complete it."""
        ...

    def useful(self) -> list[int]:
        """Workers whose answers a decode may use."""
        ...

    def place(self, worker: int) -> tuple[int, int] | None:
        """(index, count): the worker's answer, of weight 1, among the terms of the decode; None when that is not known.

        None too when no decode will use it.
        """
        ...

    def decode(self) -> Combination:
        """Weights that give the sum over all chunks. Needs `complete`. Raises: GradmuxError beyond MAX_RESIDUAL."""
        ...

    def estimate(self) -> Combination:
        """The least-squares combination of what was received: argmin over a of ||a^T B - 1||."""
        ...


class Codeword(Protocol):
    """The encoding of one job."""

    def row(self, worker: int) -> Row:
        """What `worker` sends."""
        ...

    def covers(self, answered: BoolArray) -> bool:
        """Would the answers of exactly these workers (workers,) suffice to decode? Counts only."""
        ...

    def reception(self) -> Reception:
        """A new, empty reception of this codeword."""
        ...


class Code(Protocol):
    """A family of codewords over n workers that tolerates any `tolerance` stragglers."""

    @property
    def name(self) -> str: ...
    @property
    def workers(self) -> int:
        """n"""
        ...

    @property
    def tolerance(self) -> int:
        """s: any s workers may be missing."""
        ...

    @property
    def chunks(self) -> int:
        """Equal parts that the encoded data is cut into."""
        ...

    @property
    def load(self) -> float:
        """Fraction of the encoded data that one worker processes."""
        ...

    @property
    def binary(self) -> bool:
        """True when all coefficients and weights are 0 or 1."""
        ...

    def draw(self, *parts: int) -> Codeword:
        """The codeword named by `parts` (job, or job and group): the same parts always give the same codeword."""
        ...
