"""Parameter sets that have decided alike so far are played as one, and part when they come to differ.

Columns (parameter sets) are sorted so that within a class lambda and the load rise. Whatever decides a round (how many
are late at the cut, whether lambda admits them) rises or falls with the column, so it is the same for a whole class iff
it is the same for its first and last column. Of the published search's 25,600 M-SGC sets, 3,500 classes remain.
Knows no scheme. Read next: `mu_rule.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray

Number = TypeVar("Number", bound=np.generic)
Decide: TypeAlias = Callable[[IntArray, IntArray], IntArray]
"""(columns, class of each) -> a whole number for each, monotone in the column within a class"""
Fork: TypeAlias = Callable[[IntArray, int], None]
"""(parents, classes so far): new classes, behind those there are, begin as copies of their parents"""


class Classes:
    """Runs of columns; class c holds columns first[c] .. last[c]."""

    def __init__(self, opens: BoolArray) -> None:
        """`opens` (columns,): does a class of its own begin here?"""
        self.columns = opens.size
        self.first: IntArray = np.flatnonzero(opens)
        self.last: IntArray = np.append(self.first[1:], self.columns) - 1

    @property
    def count(self) -> int:
        """Classes so far."""
        return self.first.size

    def agree(self, decide: Decide, fork: Fork) -> IntArray:
        """(classes,) the value of `decide`, after parting the classes whose columns differ in it.

        `fork` copies all state that is kept by class.
        """
        every = np.arange(self.count)
        value = decide(self.first, every)
        mixed = np.flatnonzero(value != decide(self.last, every))
        if not mixed.size:
            return value
        columns, owner = self._members(mixed)
        of_column = decide(columns, owner)
        edges = np.flatnonzero((of_column[1:] != of_column[:-1]) & (owner[1:] == owner[:-1])) + 1
        fork(owner[edges], self.count)
        self._part(columns[edges])
        return np.concatenate([value, of_column[edges]])

    def spread(self, of_class: NDArray[Number]) -> NDArray[Number]:
        """(columns, ...) each column's value of its class; `of_class` is (classes, ...)."""
        order = np.argsort(self.first)
        return np.repeat(of_class[order], (self.last - self.first + 1)[order], axis=0)

    def _members(self, classes: IntArray) -> tuple[IntArray, IntArray]:
        """The columns of these classes, and the class of each."""
        sizes = self.last[classes] - self.first[classes] + 1
        owner = np.repeat(classes, sizes)
        within = np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self.first[owner] + within, owner

    def _part(self, at: IntArray) -> None:
        """New classes begin at columns `at`."""
        self.first = np.concatenate([self.first, at])
        order = np.argsort(self.first)
        self.last = np.empty_like(self.first)
        self.last[order] = np.append(self.first[order][1:], self.columns) - 1


def opens(same: Sequence[IntArray], rising: Sequence[IntArray | FloatArray]) -> BoolArray:
    """(columns,) does a new class begin here? Where one of `same` changes, or one of `rising` falls."""
    begins = np.ones(same[0].size, dtype=np.bool_)
    changes = np.any([values[1:] != values[:-1] for values in same], axis=0)
    falls = np.any([values[1:] < values[:-1] for values in rising], axis=0)
    begins[1:] = changes | falls
    return begins
