"""Schemes with one mistake each, as plug-ins might have them; every one is a small change to a scheme that works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.scheme import (
    Assignment,
    Context,
    Decoding,
    Key,
    Parameter,
    Params,
    Scheme,
    SchemeInfo,
    StragglerModel,
    Task,
)
from gradmux.orchestrator.schemes.stragglers import PerRound
from gradmux.orchestrator.schemes.synchronous import OneRoundScheme


class Plain(OneRoundScheme):
    """One chunk per worker, all needed."""

    def __init__(self, context: Context) -> None:
        super().__init__("plain", FractionalCode(context.workers, 0, redraw=False), context)

    def straggler_model(self, name: str) -> StragglerModel:
        return PerRound(0)

    def changed(self, t: int, change: Callable[[Task], Any], worker: int = 2) -> Assignment:
        """Its assignment with one worker's task changed, from round 1 on."""
        given = dict(super().assign(t))
        task = given[worker][0]
        assert task is not None
        if t >= 1:
            given[worker] = (change(task),)
        return given


class WrongChunk(Plain):
    def assign(self, t: int) -> Assignment:
        return self.changed(t, lambda task: replace(task, chunks=(3,)))


class ChunkBeyond(Plain):
    def assign(self, t: int) -> Assignment:
        return self.changed(t, lambda task: replace(task, chunks=(99,)))


class NegativeChunk(Plain):
    def assign(self, t: int) -> Assignment:
        return self.changed(t, lambda task: replace(task, chunks=(-1,)))


class TwoCoefficients(Plain):
    def assign(self, t: int) -> Assignment:
        return self.changed(t, lambda task: replace(task, coefficients=(1.0, 1.0)))


class ChunkTwice(Plain):
    def assign(self, t: int) -> Assignment:
        return self.changed(t, lambda task: replace(task, chunks=(2, 2), coefficients=(0.5, 0.5)))


class NoChunks(Plain):
    def assign(self, t: int) -> Assignment:
        return self.changed(t, lambda task: replace(task, chunks=(), coefficients=()))


class NotFinite(Plain):
    def assign(self, t: int) -> Assignment:
        return self.changed(t, lambda task: replace(task, coefficients=(float("nan"),)))


class TextAsCoefficient(Plain):
    def assign(self, t: int) -> Assignment:
        return self.changed(t, lambda task: replace(task, coefficients=("1",)))  # type: ignore[arg-type]


class OtherJob(Plain):
    def assign(self, t: int) -> Assignment:
        return self.changed(t, lambda task: replace(task, job=t + 1))


class NoTask(Plain):
    def assign(self, t: int) -> Assignment:
        return self.changed(t, lambda task: "chunk 2")


class BareTask(Plain):
    def assign(self, t: int) -> Any:
        return {worker: slots[0] for worker, slots in super().assign(t).items()}


class NoSuchWorker(Plain):
    def assign(self, t: int) -> Assignment:
        return {worker + 1: slots for worker, slots in super().assign(t).items()}


class AssignsAList(Plain):
    def assign(self, t: int) -> Any:
        return list(super().assign(t).values())


class AssignsNothing(Plain):
    def assign(self, t: int) -> Assignment:
        super().assign(t)
        return {}


class AssignRaises(Plain):
    def assign(self, t: int) -> Assignment:
        if t == 2:
            raise KeyError(t)
        return super().assign(t)


class HeardRaises(Plain):
    def heard(self, key: Key) -> None:
        if key.worker == 3:
            raise IndexError("list index out of range")
        super().heard(key)


class NeverDecodable(Plain):
    def decodable(self, job: int) -> bool:
        return False


class DecodableTooEarly(Plain):
    def decodable(self, job: int) -> bool:
        return job in self._active and bool(self._active[job].useful())


class DecodeRaises(Plain):
    def decode(self, job: int) -> Decoding:
        raise ZeroDivisionError("division by zero")


class DecodableIsNone(Plain):
    def decodable(self, job: int) -> Any:
        return None


class WeightsOfTwo(Plain):
    binary = False

    def decode(self, job: int) -> Decoding:
        found = super().decode(job)
        return replace(found, weights=dict.fromkeys(found.weights, 2.0))


class Unheard(Plain):
    def decode(self, job: int) -> Decoding:
        found = super().decode(job)
        return replace(found, weights={**found.weights, Key(job, 0, 7): 1.0})


class OfAnotherJob(Plain):
    weights_known = False

    def decode(self, job: int) -> Decoding:
        found = super().decode(job)
        return replace(found, weights={key._replace(round=0): of for key, of in found.weights.items()})


class WeightNotFinite(Plain):
    def decode(self, job: int) -> Decoding:
        found = super().decode(job)
        return replace(found, weights=dict.fromkeys(found.weights, float("inf")))


class DecodesToADict(Plain):
    def decode(self, job: int) -> Any:
        return dict(super().decode(job).weights)


class SizesTooLarge(Plain):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.chunk_sizes = self.chunk_sizes * 1.6


class SizeOfZero(Plain):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.chunk_sizes = np.append(self.chunk_sizes, 0.0)


class NoWorkers(Plain):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.workers = 0


class BuildRaises(Plain):
    def __init__(self, context: Context) -> None:
        raise AttributeError("no such thing")


class DueTooEarly(Plain):
    def end_round(self, t: int) -> tuple[int, ...]:
        super().end_round(t)
        return (t + 1,)


class DrawsAnew(Plain):
    """Nothing seeds its permutation: no replay, and no resumed run, would do the same."""

    def assign(self, t: int) -> Assignment:
        given = super().assign(t)
        order = np.random.default_rng().permutation(self.workers).tolist()
        return {worker: given[worker] for worker in order}


class ForgetsWhenAsked(Plain):
    """A predicate that changes state."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.asked = 0

    def decodable(self, job: int) -> bool:
        self.asked += 1
        return super().decodable(job)

    def assign(self, t: int) -> Assignment:
        given = dict(super().assign(t))
        order = sorted(given, key=lambda worker: (worker + self.asked) % 5)
        return {worker: given[worker] for worker in order}


def info(made: type[Plain]) -> SchemeInfo:
    """As an entry point would name it."""

    def build(params: Params, context: Context) -> Scheme:
        return made(context)

    return SchemeInfo(
        name=name_of(made),
        title=made.__name__,
        build=build,
        parameters=(Parameter("unused", "u", int, 0, "nothing"),),
        constraints="none",
        load="1/n",
        delay="0",
        tolerates="nothing",
        costs="nothing",
        avoid="always",
        source="tests",
    )


def name_of(made: type[Plain]) -> str:
    return f"mistake-{made.__name__.lower()}"


BEFORE: Mapping[type[Plain], str] = {
    BareTask: "round 0: worker 0: its slots are a Task, not a tuple",
    NoSuchWorker: "round 0: assign names worker 6, but there are workers 0 to 5",
    AssignsAList: "round 0: assign gave a list",
    AssignsNothing: "round 0: it assigns no task to any worker, but job 0 is not decodable",
    SizesTooLarge: "its 6 chunk_sizes sum to 1.6, but must sum to 1",
    SizeOfZero: "chunk 6 is 0 of the batch",
    NoWorkers: "workers = 0",
    DecodableIsNone: "round 0: decodable(0) gave None, not True or False",
    BuildRaises: "its build raised AttributeError: no such thing (mistakes.py:",
}
"""Found before any worker is invoked: what the one line says."""
LATER: Mapping[type[Plain], str] = {
    WrongChunk: "round 1, job 1: weights x rows miss the gradient by 1.0e+00: chunk 2 counts 0 times instead of once "
    "(in no answer that is used); chunk 3 counts 2 times instead of once (worker 2 in round 1, worker 3 in round 1)",
    ChunkBeyond: "round 1: worker 2, slot 0: chunk 99 does not exist",
    NegativeChunk: "round 1: worker 2, slot 0: chunk -1 does not exist",
    TwoCoefficients: "round 1: worker 2, slot 0: 2 coefficients for 1 chunks, the first of which is chunk 2",
    ChunkTwice: "round 1: worker 2, slot 0: chunk 2 stands in its task twice",
    NoChunks: "round 1: worker 2, slot 0: its task has no chunks",
    NotFinite: "round 1: worker 2, slot 0: the coefficient of chunk 2 is nan",
    TextAsCoefficient: "round 1: worker 2, slot 0: the coefficient of chunk 2 is '1' (a str), not a number",
    OtherJob: "round 1: worker 2, slot 0 is for job 2, but in this round only job 1 can be worked on",
    NoTask: "round 1: worker 2, slot 0 holds a str, not a Task",
    AssignRaises: "round 2: assign(2) raised KeyError: 2 (mistakes.py:",
    HeardRaises: "round 0: heard(worker 3 in round 0) raised IndexError: list index out of range (mistakes.py:",
    NeverDecodable: "round 0: all 6 workers have answered, but job 0 is not decodable and nothing is in flight",
    DecodableTooEarly: "round 0, job 0: decode(0) raised AssertionError: 5 groups have no answer (fractional.py:",
    DecodeRaises: "round 0, job 0: decode(0) raised ZeroDivisionError: division by zero (mistakes.py:",
    WeightsOfTwo: "round 0, job 0: worker 0 in round 0 has weight 2, but ",
    Unheard: "round 0, job 0: a weight is for worker 0 in round 0, slot 7, whose answer was never asked for",
    OfAnotherJob: "round 1, job 1: a weight is for worker 0 in round 0, whose ",
    WeightNotFinite: "round 0, job 0: the weight of worker 0 in round 0 is inf, which is not finite",
    DecodesToADict: "round 0, job 0: decode gave dict, not a Decoding",
    DueTooEarly: "round 0: end_round says that job 1 is due, but it is not decodable",
}
"""Found while it runs."""
REHEARSED: Mapping[type[Plain], str] = {
    DrawsAnew: "round 0: the same events and seed led to different assignments",
    ForgetsWhenAsked: "round 1: asked between answers, and told them twice, it came to different assignments",
}
"""Found only by playing it several times."""
