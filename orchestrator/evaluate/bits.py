"""Sets of workers as bits, thousands at a time: union, size and the lowest members in a few machine instructions.

`Bits` is a (sets, words) array of uint64: bit i % 64 of word i // 64 of a row says whether worker i is in that set.
Rows are fetched with `take`, which copies whole rows and so is many times faster than an index array.
Knows neither rounds nor schemes. Read next: `unions.py`.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.schemes.scheme import BoolArray

Bits: TypeAlias = NDArray[np.uint64]
IntArray: TypeAlias = NDArray[np.int64]

WORD = 64
HALVES = (32, 16, 8, 4, 2, 1)
"""steps of a binary search in one word"""


def words_for(workers: int) -> int:
    """Words that a set of that many workers takes."""
    return -(-workers // WORD)


def suffixes(order: IntArray) -> Bits:
    """(n + 1, words): set k holds the last k workers of `order` (n,)."""
    workers = order.size
    last_first = order[::-1]
    table = np.zeros((workers + 1, words_for(workers)), dtype=np.uint64)
    table[np.arange(1, workers + 1), last_first // WORD] = np.uint64(1) << (last_first % WORD).astype(np.uint64)
    return np.bitwise_or.accumulate(table, axis=0)


def pack(member: BoolArray) -> Bits:
    """(sets, n) booleans as sets."""
    sets, workers = member.shape
    padded = np.zeros((sets, words_for(workers) * WORD), dtype=np.bool_)
    padded[:, :workers] = member
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def unpack(sets: Bits, workers: int) -> BoolArray:
    """Sets as (sets, n) booleans."""
    octets = np.ascontiguousarray(sets, dtype="<u8").view(np.uint8)
    return np.unpackbits(octets, axis=1, count=workers, bitorder="little").view(np.bool_)


def size(sets: Bits) -> IntArray:
    """(sets,) members of each."""
    in_word = np.bitwise_count(sets).astype(np.float32)
    # A product with ones is by far numpy's fastest sum over so short an axis, and exact here.
    return (in_word @ np.ones(sets.shape[1], dtype=np.float32)).astype(np.int64)


def meet(one: Bits, other: Bits) -> BoolArray:
    """(sets,) have the two a member in common?"""
    return size(one & other) > 0


def keep(sets: Bits, rows: BoolArray) -> Bits:
    """The sets where `rows` is true, the empty set elsewhere."""
    return sets * rows[:, np.newaxis]


def lowest(sets: Bits, members: IntArray) -> Bits:
    """The `members` (sets,) lowest members of each set; all of them where there are fewer."""
    in_word = np.bitwise_count(sets).astype(np.int64)
    before = np.cumsum(in_word, axis=1) - in_word
    wanted = np.clip(members[:, np.newaxis] - before, 0, in_word)
    below = np.where(wanted == in_word, ~np.uint64(0), _below(sets, wanted))
    return sets & below


def _below(words: Bits, members: IntArray) -> Bits:
    """All positions below the one at which each word has had `members` members; fewer than it has."""
    position = np.zeros(words.shape, dtype=np.uint64)
    left = members.copy()
    for half in HALVES:
        low = (words >> position) & np.uint64((1 << half) - 1)
        inside = np.bitwise_count(low).astype(np.int64)
        skip = inside <= left
        position += skip * np.uint64(half)
        left -= skip * inside
    return (np.uint64(1) << position) - np.uint64(1)
