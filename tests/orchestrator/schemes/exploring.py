"""Plays every straggler pattern that a model admits, from every state that a scheme can come to: each of them once.

A state is all that what follows depends on: the scheme's, the model's, and who was sent what for jobs still to decode.
Only the open round's workers answer, so history that late answers alone could ask for is dropped (`_forget`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import factorial, prod
from typing import NamedTuple, TypeAlias

from gradmux.orchestrator.schemes.scheme import Assignment, Decoding, Key, Scheme, StragglerModel, Task
from gradmux.orchestrator.schemes.selective_repeat import SelectiveRepeat
from tests.orchestrator.schemes.freezing import ModelStates, freeze, thaw
from tests.orchestrator.schemes.playing import check_decoding

Histories: TypeAlias = tuple[int, ...]
"""By worker, the rounds in which it straggled, as bits; the first round is the highest."""


@dataclass(frozen=True)
class Explored:
    """How much was played."""

    rounds: int
    """pairs of a state and an admitted pattern"""
    stands_for: int
    """the same, those included that differ from one of them by a permutation of equal workers"""


class _State(NamedTuple):
    scheme: bytes
    model: int
    sent: tuple[int, ...]
    """the assignments of rounds t-T .. t-1, by number"""
    histories: Histories | None
    """None unless workers are interchangeable"""


def explore(scheme: Scheme, model: StragglerModel, alike: Sequence[Sequence[int]] = ()) -> Explored:
    """Plays every admitted pattern. Fails on a round that has to wait, and on a decode that is late or wrong.

    `alike`: sets of workers whose permutations make no difference to the scheme and the model; of patterns that differ
    by such permutations over all rounds, one is played.
    """
    return _Exploration(scheme, model, alike).run()


class _Exploration:
    def __init__(self, scheme: Scheme, model: StragglerModel, alike: Sequence[Sequence[int]]) -> None:
        self.model = ModelStates(model)
        self.alike = [sorted(workers) for workers in alike]
        self.rounds, self.delay = scheme.rounds, scheme.delay
        histories = (0,) * scheme.workers if alike else None
        self.start = _State(freeze(scheme), 0, (), histories)
        self.assignments: list[Assignment] = []
        self.numbers: dict[tuple[object, ...], int] = {}
        self.played = self.stands_for = 0
        self.chunk_sizes = scheme.chunk_sizes
        self.check = lru_cache(maxsize=2000)(self._check)
        self.tasks = lru_cache(maxsize=200)(self._tasks)

    def run(self) -> Explored:
        reached = {self.start}
        for t in range(self.rounds):
            reached = {after for state in reached for after in self._round(state, t)}
        return Explored(self.played, self.stands_for)

    def _round(self, state: _State, t: int) -> Iterator[_State]:
        """The state after each pattern of round t that the model admits."""
        opened = thaw(state.scheme)
        assignment = opened.assign(t)
        number = self.numbers.setdefault(tuple(assignment.items()), len(self.numbers))
        if number == len(self.assignments):
            self.assignments.append(assignment)
        sent = (*state.sent, number)
        keys = {w: [Key(t, w, s) for s, task in enumerate(slots) if task] for w, slots in assignment.items()}
        begun, last = freeze(opened), t + 1 == self.rounds
        for late in self.model.admitted(state.model, opened, number, tuple(sorted(assignment))):
            histories = _extended(state.histories, late)
            if not self._is_first(histories):
                continue
            scheme = thaw(begun)
            for worker in assignment:
                if worker not in late:
                    for key in keys[worker]:
                        scheme.heard(key)
            assert scheme.may_start(t + 1), f"round {t} may not end without {late}"
            self._close(scheme, t, sent)
            self._count(histories)
            if not last:
                _forget(scheme, t)
                model = self.model.after(state.model, opened, number, late)
                yield _State(freeze(scheme), model, sent[-self.delay :] if self.delay else (), histories)

    def _close(self, scheme: Scheme, t: int, sent: tuple[int, ...]) -> None:
        """Ends round t and decodes what is due, which equal decodes of the same tasks need not be checked for twice."""
        for job in scheme.end_round(t):
            assert scheme.decodable(job), f"job {job} is due and does not decode"
            found = scheme.decode(job)
            self.check(job, t, sent, tuple(found.weights.items()), found.residual, found.amplification)

    def _check(
        self, job: int, t: int, sent: tuple[int, ...], weights: tuple[tuple[Key, float], ...], *noise: float
    ) -> None:
        check_decoding(self.chunk_sizes, self.tasks(t, sent), job, Decoding(dict(weights), *noise))

    def _tasks(self, t: int, sent: tuple[int, ...]) -> dict[Key, Task]:
        """The tasks of the last rounds up to t."""
        rounds = range(t + 1 - len(sent), t + 1)
        return {
            Key(r, worker, slot): task
            for r, number in zip(rounds, sent, strict=True)
            for worker, slots in self.assignments[number].items()
            for slot, task in enumerate(slots)
            if task is not None
        }

    def _is_first(self, histories: Histories | None) -> bool:
        """Of all patterns that permutations of equal workers make of each other, the one in ascending order is played.

        The histories of all rounds ascend only if those up to each round do: none is lost on the way.
        """
        if histories is None:
            return True
        return all(histories[a] <= histories[b] for workers in self.alike for a, b in pairwise(workers))

    def _count(self, histories: Histories | None) -> None:
        self.played += 1
        self.stands_for += 1 if histories is None else prod(_orders(histories, workers) for workers in self.alike)


def _orders(histories: Histories, workers: Sequence[int]) -> int:
    """In how many orders these workers can have their histories."""
    values = [histories[worker] for worker in workers]
    return factorial(len(values)) // prod(factorial(values.count(value)) for value in set(values))


def _extended(histories: Histories | None, late: tuple[int, ...]) -> Histories | None:
    if histories is None:
        return None
    return tuple(2 * history + (worker in late) for worker, history in enumerate(histories))


def _forget(scheme: Scheme, t: int) -> None:
    """Drops what only late answers to rounds up to t could ask for: of sr-sgc, the decoded job and who repeated when.

    Both live on for a while in the scheme, and would keep equal states apart.
    """
    if isinstance(scheme, SelectiveRepeat):
        for job in [job for job in scheme._active if job <= t - scheme.delay]:
            del scheme._active[job]
        scheme._decoded.clear()
        scheme._completed.clear()
        scheme._repeaters.clear()
        scheme._awaited.clear()
