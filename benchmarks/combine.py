"""How fast 256 results of a million float32 each are combined, and how much memory the client needs for it.

At once, and one after the other in random order, as results arrive: added as they come, against held until all are
there. The first two may take at most 1.5 times as long as reading that memory once; the exit status says whether they
did. That of adding as they come is the sum of all additions, not the wait for the next result.

    python -m benchmarks.combine [--workers 256] [--parameters 1000000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from gradmux.orchestrator.schemes.asks import Place
from gradmux.orchestrator.training.gradients import THREADS, CodedResult, combine
from gradmux.orchestrator.training.streamed_sums import StreamedSums

MOST = 1.5
REPEATS = 7
SUMS = np.ones(4)


def best_s(work: Callable[[], object]) -> float:
    """Of several runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def at_once(workers: int, parameters: int) -> tuple[float, float]:
    """(seconds to read all results once, seconds to combine them), both with as many threads."""
    gradients = [np.full(parameters, 1.0 + worker, np.float32) for worker in range(workers)]
    terms = [(CodedResult(gradient, SUMS), 1.0) for gradient in gradients]
    with ThreadPoolExecutor(THREADS) as threads:
        read_s = best_s(lambda: list(threads.map(np.max, gradients)))
    return read_s, best_s(lambda: combine(terms))


def arriving(workers: int, parameters: int, hold: bool) -> tuple[float, float]:
    """(seconds that combining took in all, the best of several; MB by which memory grew as results came and went)."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    arrive(made(workers, parameters), workers, hold)
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return min(arrive(iter(list(made(workers, parameters))), workers, hold) for _ in range(REPEATS)), grown_mb


def made(workers: int, parameters: int) -> Iterator[tuple[int, CodedResult]]:
    """All results, in random order, each made when it is asked for."""
    for index in np.random.default_rng(0).permutation(workers).tolist():
        yield index, CodedResult(np.full(parameters, 1.0 + index, np.float32), SUMS)


def arrive(results: Iterator[tuple[int, CodedResult]], workers: int, hold: bool) -> float:
    """Seconds that combining takes, one result after the other; to make them is not counted."""
    sums, held, taken_s = StreamedSums(), {}, 0.0
    for index, result in results:
        start = time.perf_counter()
        if hold:
            held[index] = result
        else:
            sums.add(Place(0, index, workers), result)
        taken_s += time.perf_counter() - start
        del result
    start = time.perf_counter()
    total = combine([(held[index], 1.0) for index in range(workers)]) if hold else sums.take(0)
    taken_s += time.perf_counter() - start
    assert total.gradient[0] == workers * (workers + 1) / 2
    return taken_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=256)
    parser.add_argument("--parameters", type=int, default=1_000_000)
    arguments = parser.parse_args()
    workers, parameters = arguments.workers, arguments.parameters
    all_mb = workers * parameters * 4 / 2**20
    print(f"{workers} results of {parameters:,} float32: {all_mb:,.0f} MB, {THREADS} threads")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        read_s, combined_s = pool.apply(at_once, (workers, parameters))
        added_s, added_mb = pool.apply(arriving, (workers, parameters, False))
        held_s, held_mb = pool.apply(arriving, (workers, parameters, True))
    print(f"{'read once':28} {read_s * 1e3:9.1f} ms")
    print(f"{'combine':28} {combined_s * 1e3:9.1f} ms   {combined_s / read_s:.2f} times one read; at most {MOST}")
    for name, taken_s, grown_mb in (
        ("added as they come", added_s, added_mb),
        ("held until all are there", held_s, held_mb),
    ):
        ratio = f"{taken_s / read_s:.2f} times one read"
        print(f"{name:28} {taken_s * 1e3:9.1f} ms   {ratio}; memory grows by {grown_mb:,.0f} MB")
    return max(combined_s, added_s) > MOST * read_s


if __name__ == "__main__":
    sys.exit(main())
