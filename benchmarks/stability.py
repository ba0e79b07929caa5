"""How much of a gradient is lost to rounding: worst and median relative decode error of every code, by n, s and dtype.

Chunk gradients are random float32 vectors; workers add theirs up as the real ones do, results travel through the real
buffers, losses are random, decoding is the orchestrator's own. The error is |decoded - exact| / |exact|, Euclidean.
The fractional code must stay within 1e-6 (float32) and 1e-3 (float16) everywhere; the exit status says whether it did.
In real runs cyclic and dft results travel in float64 and float16 is refused: the table shows why.

    python -m benchmarks.stability [--patterns 20]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from gradmux.lambda_worker.buffers import decode_result, encode_result
from gradmux.orchestrator.errors import ConfigError, GradmuxError
from gradmux.orchestrator.schemes.codes import CODES, Code, Combination, make_code
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.training.gradients import CodedResult, combine

WORKERS, STRAGGLERS = (16, 64, 256, 1000), (1, 3, 15, 60)
WIRES = ("float64", "float32", "float16")
BOUNDS = {"float32": 1e-6, "float16": 1e-3}
"""that the fractional code must keep"""
SIZE, GRADIENTS = 200, 2
"""elements of a gradient; different gradients of one code"""
MAGNITUDE = 1e-6
"""of an element: without its scale, float16 would lose such small numbers"""
NO_SUMS = torch.zeros(4, dtype=torch.float64)


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of the decodes of one code."""

    by_wire: dict[str, list[float]]
    refused: int
    """decodes that were refused, since the weights themselves were lost to rounding"""


def measure(code: Code, patterns: int, seed: int = 0) -> Errors:
    """Decodes after `patterns` random losses, spread over GRADIENTS random gradients."""
    rng = np.random.default_rng((seed, code.workers, code.tolerance))
    errors: dict[str, list[float]] = {wire: [] for wire in WIRES}
    refused = 0
    for draw in range(min(GRADIENTS, patterns)):
        chunks = (MAGNITUDE * rng.standard_normal((code.chunks, SIZE))).astype(np.float32)
        exact = chunks.sum(axis=0, dtype=np.float64)
        results = travelled(code, draw, chunks)
        for _ in range(len(range(draw, patterns, GRADIENTS))):
            try:
                weights = decode(code, draw, rng).weights
            except GradmuxError:
                refused += 1
                continue
            for wire in WIRES:
                found = combine([(results[wire][worker], weight) for worker, weight in weights.items()]).gradient
                errors[wire].append(float(np.linalg.norm(found - exact) / np.linalg.norm(exact)))
    return Errors(errors, refused)


def travelled(code: Code, draw: int, chunks: NDArray[np.float32]) -> dict[str, list[CodedResult]]:
    """By wire, what arrives from every worker; added up in float64 only where it travels in float64, as workers do."""
    word = code.draw(draw)
    found: dict[str, list[CodedResult]] = {wire: [] for wire in WIRES}
    for worker in range(code.workers):
        terms = [(torch.from_numpy(chunks[chunk]), a) for chunk, a in zip(*word.row(worker), strict=True)]
        single, double = coded(terms, torch.float32), coded(terms, torch.float64)
        for wire, results in found.items():
            buffer = encode_result(double if wire == "float64" else single, NO_SUMS, wire)
            results.append(CodedResult(*decode_result(buffer)))
    return found


def coded(terms: list[tuple[Tensor, float]], dtype: torch.dtype) -> Tensor:
    """(SIZE,) the sum of coefficient times chunk, term by term."""
    total = torch.zeros(SIZE, dtype=dtype)
    for chunk, coefficient in terms:
        total.add_(chunk, alpha=coefficient)
    return total


def decode(code: Code, draw: int, rng: np.random.Generator) -> Combination:
    """The weights at the earliest decodable instant of a random order of arrival."""
    reception = code.draw(draw).reception()
    for worker in rng.permutation(code.workers).tolist():
        reception.add(worker)
        if reception.complete:
            break
    return reception.decode()


def all_codes() -> Iterator[tuple[str, int, int, Code | None]]:
    """(name, n, s, code); None where there is no such code."""
    for name in CODES:
        for workers in WORKERS:
            for stragglers in STRAGGLERS:
                yield name, workers, stragglers, _code(name, workers, stragglers)


def _code(name: str, workers: int, stragglers: int) -> Code | None:
    if stragglers >= workers:
        return None
    try:
        return make_code(name, workers, stragglers, 0)
    except ConfigError:
        return None


def main() -> None:
    """Prints the table; exit status 1 when the fractional code broke a bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--patterns", type=int, default=20, help="random losses for each code")
    patterns = parser.parse_args().patterns
    with threadpool_limits(1):  # on a busy machine more threads take several times as long
        sys.exit(not tell(patterns))


def tell(patterns: int) -> bool:
    """Prints the table. True: the fractional code kept its bounds."""
    began, held = time.perf_counter(), True
    print(f"relative decode error, median / worst of {patterns} random losses")
    print(f"{'code':12}{'n':>6}{'s':>5}" + "".join(f"{wire:>22}" for wire in WIRES) + "  refused")
    for name, workers, stragglers, code in all_codes():
        if code is None:
            print(f"{name:12}{workers:6}{stragglers:5}{'there is no such code':>24}")
            continue
        errors = measure(code, patterns)
        cells = (f"{_figures(np.array(errors.by_wire[wire])):>22}" for wire in WIRES)
        print(f"{name:12}{workers:6}{stragglers:5}{''.join(cells)}{errors.refused:9}", flush=True)
        if name == "fractional":
            held &= all(max(errors.by_wire[wire]) <= bound for wire, bound in BOUNDS.items())
    print(f"fractional within {BOUNDS}: {'yes' if held else 'NO'}; {time.perf_counter() - began:.0f} s")
    return held


def _figures(errors: FloatArray) -> str:
    return f"{np.median(errors):.1e} / {errors.max():.1e}" if errors.size else "-"


if __name__ == "__main__":
    main()
