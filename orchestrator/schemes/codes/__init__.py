"""Codes within one round. Read `code.py` first, then `fractional.py` (the default), `cyclic.py` and `dft.py`."""

from __future__ import annotations

from orchestrator.schemes.codes.code import Code, Codeword, Combination, Reception, Row
from orchestrator.schemes.codes.fractional import FractionalCode

CODES = ("fractional",)
"""Names of the codes, as parameter `code` takes them."""


def make_code(name: str, workers: int, tolerance: int, seed: int) -> Code:
    """The code called `name` for n workers of which any `tolerance` may straggle.

    Raises: ConfigError when this code does not exist for these numbers.
    """
    assert name in CODES, name
    return FractionalCode(workers, tolerance, seed)


__all__ = ["CODES", "Code", "Codeword", "Combination", "FractionalCode", "Reception", "Row", "make_code"]
