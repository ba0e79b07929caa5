"""Decode errors through the real buffers and the real decoder, by the benchmark that reports them for every size."""

from __future__ import annotations

from itertools import product

import pytest

from benchmarks.stability import BOUNDS, STRAGGLERS, WORKERS, measure
from gradmux.orchestrator.schemes.codes import make_code


@pytest.mark.parametrize("wire", BOUNDS)
@pytest.mark.parametrize(("workers", "stragglers"), [(n, s) for n, s in product(WORKERS, STRAGGLERS) if s < n])
def test_the_fractional_code_loses_nothing_but_the_rounding_of_its_results(
    workers: int, stragglers: int, wire: str
) -> None:
    errors = measure(make_code("fractional", workers, stragglers, 0), patterns=4)
    assert len(errors.by_wire[wire]) == 4
    assert max(errors.by_wire[wire]) <= BOUNDS[wire]


def test_the_same_measure_finds_out_codes_that_do() -> None:
    """Cyclic codes need float64, where they are good."""
    errors = measure(make_code("cyclic", 64, 15, 0), patterns=4)
    assert max(errors.by_wire["float32"]) > BOUNDS["float32"]
    assert max(errors.by_wire["float16"]) > BOUNDS["float16"]
    assert max(errors.by_wire["float64"]) < 1e-9
