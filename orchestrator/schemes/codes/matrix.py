"""Codes given by an encoding matrix B: any n - s of its n rows decode, by a structured solve.

B has rank n - s. With its rows scaled to length 1, let Z (n, s) span the left null space with orthonormal columns and
let a0 be the solution of a0 B = 1 of least norm: then every decoding row is a0 + w Z^T. To decode without workers E,
solve Z[E] w = -a0[E]: O(s^3 + n s), the check of the residual included, instead of a least-squares problem of size n.
When fewer than s are missing, the w of least norm gives the least amplification, which for rows of length 1 is
||a|| / sqrt(n).
Knows neither rounds nor schemes. Read next: `cyclic.py`, `dft.py`, which make the matrices.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.schemes.codes.code import Combination, Row
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


class MatrixCode:
    """One fixed codeword for all jobs. Entries outside a worker's support must be exact zeros."""

    binary = False

    def __init__(self, name: str, matrix: FloatArray, tolerance: int) -> None:
        self.name, self.matrix, self.tolerance = name, matrix, tolerance
        self.workers: int = matrix.shape[0]
        self.chunks: int = matrix.shape[1]
        self.lengths: FloatArray = np.linalg.norm(matrix, axis=1)
        """(workers,) ||B_i||"""
        left, singular, right = np.linalg.svd(matrix / self.lengths[:, np.newaxis])
        rank = self.workers - tolerance
        self.null: FloatArray = left[:, rank:]
        """Z, (workers, s)"""
        self.particular: FloatArray = left[:, :rank] @ (right[:rank].sum(axis=1) / singular[:rank])
        """a0, (workers,)"""
        self.support = np.nonzero(matrix)
        """(entries,) worker and chunk of each coefficient"""
        self.coefficients: FloatArray = matrix[self.support]
        """(entries,)"""
        self._rows = [_sparse(row) for row in matrix]
        self.load = (tolerance + 1) / self.chunks

    def draw(self, *parts: int) -> MatrixCode:
        """Itself: which workers straggle makes no difference to it."""
        return self

    def row(self, worker: int) -> Row:
        """The chunks of `worker` and their coefficients."""
        return self._rows[worker]

    def covers(self, answered: BoolArray) -> bool:
        """Are they at least n - s?"""
        return int(np.count_nonzero(answered)) >= self.workers - self.tolerance

    def reception(self) -> MatrixReception:
        """A new, empty reception."""
        return MatrixReception(self)


def _sparse(row: FloatArray) -> Row:
    chunks = np.flatnonzero(row)
    return tuple(chunks.tolist()), tuple(row[chunks].tolist())


class MatrixReception:
    """Who has answered."""

    def __init__(self, code: MatrixCode) -> None:
        self._code = code
        self.received: BoolArray = np.zeros(code.workers, dtype=np.bool_)
        self.needed = code.workers - code.tolerance

    @property
    def complete(self) -> bool:
        """Are n - s answers in?"""
        return self.needed == 0

    def add(self, worker: int) -> bool:
        """Takes an answer. Those beyond n - s are of use too: they lower the amplification."""
        if self.received[worker]:
            return False
        self.received[worker] = True
        self.needed = max(0, self.needed - 1)
        return True

    def helpful(self) -> list[int]:
        """All missing workers, lowest first; none once complete."""
        return [] if self.complete else [int(worker) for worker in np.flatnonzero(~self.received)]

    def useful(self) -> list[int]:
        """All who answered."""
        return [int(worker) for worker in np.flatnonzero(self.received)]

    def place(self, worker: int) -> None:
        """Weights depend on who else answers."""
        return None

    def decode(self) -> Combination:
        """a = a0 + w Z^T with a[E] = 0 for the missing E."""
        assert self.complete, f"{self.needed} more answers are needed"
        code, missing = self._code, ~self.received
        shift = np.linalg.lstsq(code.null[missing], -code.particular[missing], rcond=None)[0]
        scaled = code.particular + code.null @ shift
        scaled[missing] = 0.0
        return self._combination(scaled / code.lengths).checked(code.name)

    def estimate(self) -> Combination:
        """argmin ||B_S^T a - 1|| over the received rows S, by a dense solve when they do not suffice."""
        if self.complete:
            return self.decode()
        weights = np.zeros(self._code.workers)
        rows = self._code.matrix[self.received]
        weights[self.received] = np.linalg.lstsq(rows.T, np.ones(self._code.chunks), rcond=None)[0]
        return self._combination(weights)

    def _combination(self, weights: FloatArray) -> Combination:
        code = self._code
        workers, chunks = code.support
        error = np.bincount(chunks, weights[workers] * code.coefficients, minlength=code.chunks) - 1.0
        return Combination(
            weights={worker: float(weights[worker]) for worker in self.useful()},
            residual=float(np.abs(error).max()),
            amplification=float(np.linalg.norm(weights * code.lengths)) / float(np.sqrt(code.workers)),
            missing=float(np.mean(error**2)),
        )
