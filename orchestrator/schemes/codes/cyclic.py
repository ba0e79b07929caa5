"""Cyclic repetition with random coefficients: worker i holds chunks i .. i+s (mod n), any n - s decode, load (s+1)/n.

H (s, n) is Gaussian with its last column minus the sum of the others, so that H 1 = 0. Row i of the code is the vector
of H's null space with support i .. i+s and B[i, i] = 1. Source: Tandon et al. 2017, algorithm 2.

Stability: at n = 256, s = 15 a typical loss amplifies rounding a thousandfold, a bad one far more, so these codes
encode and travel in float64 and should be kept to small s; the fractional code has no such limit.

By hand, n = 3, s = 1, H = (1, 1, -2): rows (1, -1, 0), (0, 1, 1/2) and (2, 0, 1), each at right angles to H.
Without worker 0: 1 y_1 + 1/2 y_2 = (1, 1, 1).
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.schemes.codes.matrix import MatrixCode
from gradmux.orchestrator.schemes.scheme import FloatArray


def cyclic_code(workers: int, tolerance: int, seed: int = 0) -> MatrixCode:
    """The (n, s) code whose H is drawn from `seed`; 0 <= s < n."""
    assert 0 <= tolerance < workers
    return MatrixCode("cyclic", encoding_matrix(parity(workers, tolerance, seed)), tolerance)


def parity(workers: int, tolerance: int, seed: int) -> FloatArray:
    """H, (s, n) with rows that sum to zero."""
    source = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, workers, tolerance))))
    free = source.standard_normal((tolerance, workers - 1))
    return np.hstack([free, -free.sum(axis=1, keepdims=True)])


def encoding_matrix(parity: FloatArray) -> FloatArray:
    """B, (n, n): row i spans the null space of H on the support i .. i+s (mod n), with B[i, i] = 1."""
    tolerance, workers = parity.shape
    matrix = np.eye(workers)
    for worker in range(workers):
        others = np.arange(worker + 1, worker + 1 + tolerance) % workers
        matrix[worker, others] = -np.linalg.solve(parity[:, others], parity[:, worker])
    return matrix
