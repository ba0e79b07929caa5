"""What lazy schemes ask about weights and gradients: asked of the trainer, written down, and replayed from the record.

Knows neither the schemes that ask nor how a distance is computed. Read next: `schemes/lazy.py`, `loop.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from gradmux.orchestrator.errors import GradmuxError
from gradmux.orchestrator.schemes.scheme import Distances, Key


class RecordedDistances:
    """Passes questions on and keeps the answers until the loop takes them for the record."""

    def __init__(self, source: Distances) -> None:
        self._source = source
        self._answers: list[tuple[str, float]] = []

    def weights(self, job: int, other: int) -> float:
        return self._noted(_weights_question(job, other), self._source.weights(job, other))

    def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
        return self._noted(_gradients_question(one, other), self._source.gradients(one, other))

    def take(self) -> list[tuple[str, float]]:
        """The questions and answers since the last call."""
        taken, self._answers = self._answers, []
        return taken

    def _noted(self, question: str, answer: float) -> float:
        self._answers.append((question, answer))
        return answer


class ReplayedDistances:
    """Answers from a record, in the order in which they were asked."""

    def __init__(self, answers: Iterable[tuple[str, float]], *, cut_off: bool = False) -> None:
        """`cut_off`: the record ends before the run was done, and what is asked after its end does not matter."""
        self._answers, self._cut_off = deque(answers), cut_off

    def weights(self, job: int, other: int) -> float:
        return self._next(_weights_question(job, other))

    def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
        return self._next(_gradients_question(one, other))

    def _next(self, question: str) -> float:
        if self._cut_off and not self._answers:
            return 0.0
        if not self._answers or self._answers[0][0] != question:
            recorded = self._answers[0][0] if self._answers else "nothing"
            raise GradmuxError(f"the replay asks for the distance {question}, but the record goes on with {recorded}")
        return self._answers.popleft()[1]


def _weights_question(job: int, other: int) -> str:
    return f"w{job}-{other}"


def _gradients_question(one: Mapping[Key, float], other: Mapping[Key, float]) -> str:
    """Which results; their weights follow from these."""
    return "g" + "-".join("+".join(".".join(map(str, key)) for key in keys) for keys in (one, other))
