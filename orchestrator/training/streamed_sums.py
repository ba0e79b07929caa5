"""Sums of results that arrive in any order, with the bits of `gradients.combine`.

The tree is cut into groups of RADIX neighbours. Results wait until their group is whole, are then added in one go and
make one term of the next level. So every result is read once, and 1/RADIX of that memory again on each level above;
to add pairs as they come would move three times as much. Knows neither torch nor schemes. Read next: `trainer.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradmux.lambda_worker.summation import Vector
from gradmux.orchestrator.schemes.asks import Place
from gradmux.orchestrator.training.gradients import CodedResult, Kind, add_vectors, check_alike, held_buffers, kind_of

RADIX = 16
"""A power of two: such a group is a subtree of the whole tree. Fewer would wait less, and move more memory."""
_Node = tuple[Vector, float]
"""a vector, and its weight in the sum"""


class StreamedSums:
    """`ports.Sums`: one `Combiner` for each job that is under way."""

    def __init__(self) -> None:
        self._combiners: dict[int, Combiner] = {}

    def add(self, place: Place, result: CodedResult) -> None:
        if place.job not in self._combiners:
            self._combiners[place.job] = Combiner(place.count)
        self._combiners[place.job].add(place.index, result, 1.0)

    def take(self, job: int) -> CodedResult:
        """An estimate's sum has places that are not taken: its tree keeps their room."""
        combiner = self._combiners.pop(job)
        combiner.skip_rest()
        return combiner.total()


class Combiner:
    """The same sum, term by term in any order, with the same bits: position i is the i-th term of `combine`.

    In random order three quarters of the vectors wait at worst; terms in canonical order leave RADIX on each level.
    No vector is copied: the sum of a group takes the memory of its first one, unless that is read-only.
    """

    def __init__(self, positions: int) -> None:
        """`positions` is how many terms there will be, absent ones included."""
        assert positions > 0
        self._positions = positions
        self._open = set(range(positions))
        self._widths = [positions]
        """nodes on each level, up to the root"""
        while self._widths[-1] > 1:
            self._widths.append(-(-self._widths[-1] // RADIX))
        self._groups: dict[tuple[int, int], dict[int, _Node | None]] = {}
        """(level, number) -> the members that are there, by index on their level; None: nothing will come"""
        self._sums: dict[int, NDArray[np.float64]] = {}
        self._buffers: dict[int, NDArray[np.float64]] = {}
        self._kinds: set[Kind] = set()

    @property
    def complete(self) -> bool:
        """Was every position added or skipped?"""
        return not self._open

    @property
    def held(self) -> int:
        """Vectors that wait: results, and sums of groups."""
        return sum(node is not None for group in self._groups.values() for node in group.values())

    def add(self, position: int, result: CodedResult, weight: float) -> None:
        """Adds one term, whose vector belongs to the sum from now on."""
        if weight == 0.0:
            self.skip(position)
            return
        self._kinds.add(kind_of(result))
        check_alike(self._kinds)
        self._sums[position] = weight * result.sums
        if result.buffers.size:
            self._buffers[position] = result.buffers
        self._settle(position, (result.gradient, weight))

    def skip(self, position: int) -> None:
        """Nothing will come at this position."""
        self._settle(position, None)

    def skip_rest(self) -> None:
        """Nothing more will come."""
        for position in sorted(self._open):
            self.skip(position)

    def total(self) -> CodedResult:
        """The sum, once complete. Raises ValueError when every position was skipped."""
        assert self.complete, f"{len(self._open)} of {self._positions} positions are open"
        ((root,),) = (group.values() for group in self._groups.values())
        if root is None:
            raise ValueError("nothing to combine: no result has a weight")
        vector, weight = root
        sums = np.sum([self._sums[position] for position in sorted(self._sums)], axis=0)
        buffers = held_buffers(self._buffers[position] for position in sorted(self._buffers))
        return CodedResult(vector * weight if self._positions == 1 else vector, sums, buffers)

    def _settle(self, position: int, node: _Node | None) -> None:
        """Puts a node in its place, and adds groups that have become whole as far up as possible."""
        self._open.remove(position)
        level, index = 0, position
        while self._place(level, index, node) and level + 1 < len(self._widths):
            level, index = level + 1, index // RADIX
            node = self._sum_of(self._groups.pop((level, index)))

    def _place(self, level: int, index: int, node: _Node | None) -> bool:
        """Adds a member to its group, which is named by its sum's place; is the group whole now?"""
        number = index // RADIX
        group = self._groups.setdefault((level + 1, number), {})
        group[index] = node
        return len(group) == min(RADIX, self._widths[level] - number * RADIX)

    def _sum_of(self, group: dict[int, _Node | None]) -> _Node | None:
        """The sum of a whole group; a member that is absent leaves the others as they are."""
        members = [group[index] for index in sorted(group)]
        present = [member for member in members if member is not None]
        if not present:
            return None
        first = present[0][0]
        return add_vectors(members, first if first.flags.writeable else np.empty_like(first)), 1.0
