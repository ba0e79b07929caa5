"""Codes within one round.

Read `code.py` first, then `fractional.py` (the default), `matrix.py` and the two families that it serves, `cyclic.py`
and `dft.py`.
"""

from __future__ import annotations

from gradmux.orchestrator.schemes.codes.code import Code, Codeword, Combination, Reception, Row
from gradmux.orchestrator.schemes.codes.cyclic import cyclic_code
from gradmux.orchestrator.schemes.codes.dft import dft_code
from gradmux.orchestrator.schemes.codes.fractional import FractionalCode

CODES = ("fractional", "cyclic", "dft")
"""Names of the codes, as parameter `code` takes them."""


def make_code(name: str, workers: int, tolerance: int, seed: int) -> Code:
    """The code called `name` for n workers of which any `tolerance` may straggle.

    Raises: ConfigError when this code does not exist for these numbers.
    """
    if name == "cyclic":
        return cyclic_code(workers, tolerance, seed)
    if name == "dft":
        return dft_code(workers, tolerance)
    assert name == "fractional", name
    return FractionalCode(workers, tolerance, seed)


__all__ = [
    "CODES",
    "Code",
    "Codeword",
    "Combination",
    "FractionalCode",
    "Reception",
    "Row",
    "cyclic_code",
    "dft_code",
    "make_code",
]
