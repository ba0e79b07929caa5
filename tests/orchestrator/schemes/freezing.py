"""Bytes that stand for the state of a scheme or of a straggler model: to go back to it, and to see that two are equal.

Codes, codewords and layouts never change: their bytes only name them. Small arrays are written without numpy's detour.
"""

from __future__ import annotations

import io
import pickle
from functools import lru_cache
from itertools import combinations
from types import MethodType
from typing import Any, ClassVar, TypeAlias

import numpy as np

from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.codes.fractional import FractionalWord
from gradmux.orchestrator.schemes.codes.matrix import MatrixCode
from gradmux.orchestrator.schemes.multiplexed_job import Layout
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray, Scheme, StragglerModel

Pattern: TypeAlias = tuple[int, ...]
"""Workers, ascending."""

_SHARED: list[object] = []
_BY_IDENTITY: dict[int, int] = {}
_BY_VALUE: dict[tuple[type, bytes], int] = {}


def _shared(number: int) -> object:
    return _SHARED[number]


def _share(value: object) -> tuple[Any, ...]:
    number = _BY_IDENTITY.get(id(value))
    if number is None:
        number = _BY_VALUE.setdefault((type(value), pickle.dumps(value)), len(_SHARED))
        if number == len(_SHARED):
            _SHARED.append(value)
            _BY_IDENTITY[id(value)] = number
    return _shared, (number,)


def _array(content: bytes, kind: str, shape: tuple[int, ...]) -> FloatArray:
    return np.frombuffer(content, kind).reshape(shape).copy()


def _flatten(array: FloatArray) -> tuple[Any, ...]:
    return _array, (array.tobytes(), array.dtype.str, array.shape)


_WRITERS = {**dict.fromkeys((FractionalCode, FractionalWord, MatrixCode, Layout), _share), np.ndarray: _flatten}


def freeze(scheme: Scheme) -> bytes:
    """The state of a scheme, for `thaw`."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _WRITERS
    pickler.dump(scheme)
    return file.getvalue()


def thaw(state: bytes) -> Scheme:
    """A new object in this state."""
    scheme: Scheme = pickle.loads(state)
    return scheme


class ModelStates:
    """The states of one straggler model, by number: what it says of a pattern is asked of it once, and remembered.

    It may look at its scheme through a method that it holds, but no further than at who computes what in the open
    round: hence `sent` below, which names the assignment of that round.
    """

    def __init__(self, model: StragglerModel) -> None:
        self._states: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._looks = False
        """Does it hold a method?"""
        self._admitted: dict[tuple[int, int, Pattern], tuple[Pattern, ...]] = {}
        self._following: dict[tuple[int, int, Pattern], int] = {}
        self._number(model)

    def admitted(self, state: int, scheme: Scheme, sent: int, invoked: Pattern) -> tuple[Pattern, ...]:
        """Every set of invoked workers that may straggle in the open round of `scheme`."""
        asked = (state, sent if self._looks else 0, invoked)
        if asked not in self._admitted:
            model = self._read(state, scheme)
            sets = (late for size in range(len(invoked) + 1) for late in combinations(invoked, size))
            self._admitted[asked] = tuple(late for late in sets if model.admits(_mask(scheme.workers, late)))
        return self._admitted[asked]

    def after(self, state: int, scheme: Scheme, sent: int, late: Pattern) -> int:
        """The state after exactly `late` have straggled in the open round of `scheme`."""
        asked = (state, sent if self._looks else 0, late)
        if asked not in self._following:
            model = self._read(state, scheme)
            model.commit(_mask(scheme.workers, late))
            self._following[asked] = self._number(model)
        return self._following[asked]

    def _number(self, model: StragglerModel) -> int:
        file = io.BytesIO()
        writer = _Writer(file, pickle.HIGHEST_PROTOCOL)
        writer.dump(model)
        self._looks |= writer.methods > 0
        state = file.getvalue()
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def _read(self, state: int, scheme: Scheme) -> StragglerModel:
        model: StragglerModel = _Reader(self._states[state], scheme).load()
        return model


@lru_cache(maxsize=1000)
def _mask(workers: int, late: Pattern) -> BoolArray:
    mask = np.zeros(workers, dtype=np.bool_)
    mask[list(late)] = True
    mask.flags.writeable = False
    return mask


class _Writer(pickle.Pickler):
    """Writes only the names of methods, and counts them."""

    dispatch_table: ClassVar = {np.ndarray: _flatten}
    methods = 0

    def persistent_id(self, value: object) -> str | None:
        if not isinstance(value, MethodType):
            return None
        self.methods += 1
        return value.__name__


class _Reader(pickle.Unpickler):
    """Finds methods in the scheme at hand."""

    def __init__(self, state: bytes, scheme: Scheme) -> None:
        super().__init__(io.BytesIO(state))
        self._scheme = scheme

    def persistent_load(self, name: str) -> object:
        return getattr(self._scheme, name)
