"""Cyclic MDS code from the discrete Fourier transform: circulant, any n - s rows decode, load (s+1)/n, nothing random.

With w = exp(2 pi i/n) and A the s consecutive exponents around n/2, row i holds the coefficients of prod over e in A of
(x - w^e), shifted by i: they are real iff A is closed under e -> n - e, which needs n - s odd (or s = 0). The left null
space is spanned by z_i = w^(-i e), e in A; a0 = 1/p(1) for all workers. Source: Raviv et al. 2017 (arXiv 1707.03858).
Its coefficients and its amplification grow fast with s: use it for s <= 3.

By hand, n = 3, s = 2: A = {1, 2}, (x - w)(x - w^2) = 1 + x + x^2, so every worker sends g and any one answer decodes.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.codes.matrix import MatrixCode


def dft_code(workers: int, tolerance: int) -> MatrixCode:
    """The (n, s) code; 0 <= s < n. Raises: ConfigError when n - s is even, for then it is not real."""
    assert 0 <= tolerance < workers
    if tolerance > 0 and (workers - tolerance) % 2 == 0:
        fits = " or ".join(str(s) for s in (tolerance - 1, tolerance + 1) if s < workers)
        raise ConfigError(
            f"code = dft is complex for n = {workers} workers and s = {tolerance} stragglers, since n - s must be odd: "
            f"use s = {fits}, or {workers + 1} workers, or code = fractional"
        )
    first = (workers - tolerance + 1) // 2
    exponents = np.arange(first, first + tolerance)
    rising = np.atleast_1d(np.poly(np.exp(2j * np.pi * exponents / workers)).real)[::-1]
    row = np.zeros(workers)
    row[: tolerance + 1] = rising / rising[0]
    return MatrixCode("dft", np.stack([np.roll(row, worker) for worker in range(workers)]), tolerance)
