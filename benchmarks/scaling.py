"""How the client's own work grows with the number of workers: its processor time per round, on an idle endpoint.

The whole client is measured, not only its fleet: scheme, rounds, loop, record, requests, HTTP, replies. `uncoded` asks
everybody and uses everything; `gc` with n/8 stragglers decodes from a few. Results are empty, so that adding them costs
nothing. Time per worker should not grow; it may at most double from 64 to 4,000 workers.

    python -m benchmarks.scaling [--rounds 12]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.light_lambda import RUN, Requests, light_lambda
from gradmux.orchestrator.fleets.calling import Function
from gradmux.orchestrator.fleets.http_dial import allow_descriptors
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.record import Decoded, MemoryRecord
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.registry import build_scheme, get, parse_params
from gradmux.orchestrator.schemes.scheme import Context
from gradmux.orchestrator.simulate import NoTrainer
from gradmux.orchestrator.store import MemoryStore

WORKERS = (64, 256, 1000, 4000)
MOST_GROWTH = 2.0


def cpu_per_round(scheme_name: str, workers: int, url: str, rounds: int) -> tuple[float, float]:
    """(milliseconds of processor time, of wall time) of a round, medians; in this process, which should be fresh."""
    allow_descriptors()
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}
    params: dict[str, Any] = {} if scheme_name == "uncoded" else {"s": workers // 8}
    plan = JobPlan(models=1, steps=rounds + 1)
    context = Context(workers=workers, jobs=plan.jobs)
    scheme = build_scheme(scheme_name, parse_params(get(scheme_name), params), context)
    fleet = LambdaFleet(Function("worker"), Requests(), MemoryStore(), run=RUN, endpoint_url=url)
    cpus, walls = [time.process_time()], [time.perf_counter()]

    def on_step(_: Decoded) -> None:
        cpus.append(time.process_time())
        walls.append(time.perf_counter())

    loop = Loop(
        plan=plan,
        rounds=Rounds(scheme, plan, Earliest(), Limits(in_flight_cap=0.0)),
        fleet=fleet,
        trainer=NoTrainer(),
        recorder=MemoryRecord(),
        on_step=on_step,
    )
    loop.run()
    fleet.close()
    cpu_s, wall_s = (median(end - start for start, end in pairwise(times[1:])) for times in (cpus, walls))
    return cpu_s * 1e3, wall_s * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    print(f"{'scheme':10} {'n':>6} {'CPU/round, ms':>14} {'CPU/worker, us':>15} {'wall/round, ms':>15}")
    growth = 0.0
    for scheme in ("uncoded", "gc"):
        by_worker = []
        for workers in WORKERS:
            with light_lambda() as url, multiprocessing.get_context("spawn").Pool(1) as pool:
                cpu_ms, wall_ms = pool.apply(cpu_per_round, (scheme, workers, url, rounds))
            by_worker.append(cpu_ms / workers * 1e3)
            print(f"{scheme:10} {workers:6,} {cpu_ms:14.1f} {by_worker[-1]:15.1f} {wall_ms:15.1f}", flush=True)
        growth = max(growth, by_worker[-1] / by_worker[0])
    print(f"time per worker at {WORKERS[-1]:,} is {growth:.2f} times that at {WORKERS[0]}; at most {MOST_GROWTH}")
    return growth > MOST_GROWTH


if __name__ == "__main__":
    sys.exit(main())
