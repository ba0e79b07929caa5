"""Through the emulator to 256 forked workers and back: calls that do nothing, and replies of 1.3 MB each.

Everything is real but the computing: requests, signatures, HTTP, worker processes, AWS's runtime loop in them, JSON,
base64, checksums. Stock boto3 with 256 threads beside our fleet. Bounds: 100 ms, and 0.5 s; the exit status says
whether the best of a few rounds kept them. Processor time by process shows where it goes.

    python -m benchmarks.replies [--workers 256]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import botocore.session
from msgspec import structs

from benchmarks.boto3_fleet import Boto3Fleet
from benchmarks.light_lambda import RUN, Requests, invocations
from gradmux.infra.local import Emulator, EmulatorConfig
from gradmux.lambda_worker.contract import Request
from gradmux.orchestrator.aws import new_session
from gradmux.orchestrator.fleets.calling import Function
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.store import MemoryStore

NOTHING, LARGE = 16, 975_000
"""bytes of a result; base64 makes 1.3 MB of the second"""
BOUNDS_MS = {NOTHING: 100.0, LARGE: 500.0}
ROUNDS = {("ours", NOTHING): 25, ("ours", LARGE): 12, ("boto3", NOTHING): 5, ("boto3", LARGE): 3}


@dataclass(frozen=True, slots=True)
class SizedRequests(Requests):
    """Requests that say how large their results are to be."""

    size: int

    def build(self, call: Invocation) -> Request:
        request = Requests.build(self, call)
        tasks = tuple(structs.replace(task, model=f"bytes/{self.size}") for task in request.tasks)
        return structs.replace(request, tasks=tasks)


def session_of(emulator: Emulator) -> botocore.session.Session:
    session = new_session()
    session.set_config_variable("region", emulator.config.region)
    session.set_credentials(emulator.secret.access_key, emulator.secret.secret_key)
    return session


def processor_s(emulator: Emulator) -> dict[str, float]:
    """Processor time so far, by process; all workers together."""
    pids = {name: pid for name, (pid, _) in emulator.started.processes.items() if name == "server"}
    spent = {name: _spent_s(pid) for name, pid in pids.items()}
    workers = sum(_spent_s(sandbox["pid"]) for sandbox in emulator.admin.sandboxes())
    return {"client": time.process_time(), "endpoint": spent["server"], "workers": workers}


def _spent_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def play(kind: str, size: int, emulator: Emulator, workers: int) -> tuple[float, float]:
    """Prints and returns (best, median) milliseconds of a round."""
    make: Any = LambdaFleet if kind == "ours" else Boto3Fleet
    fleet = make(
        Function(emulator.config.function), SizedRequests(size), MemoryStore(), run=RUN,
        session=session_of(emulator), endpoint_url=emulator.lambda_endpoint,
    )  # fmt: skip
    walls, rounds = [], ROUNDS[kind, size]
    for round in range(-2, rounds):
        if round == 0:
            before = processor_s(emulator)
        start = time.perf_counter()
        fleet.invoke(invocations(workers, max(0, round)))
        answered = sum(bool(arrival.slots) for arrival in iter(lambda: fleet.next(None), None))
        walls.append((time.perf_counter() - start) * 1e3)
        assert answered == workers, f"{workers - answered} workers failed"
    spent = {name: (after - before[name]) / rounds / workers * 1e6 for name, after in processor_s(emulator).items()}
    fleet.close()
    best, usual = min(walls[2:]), median(walls[2:])
    parts = ", ".join(f"{name} {us:,.0f}" for name, us in spent.items())
    print(f"{size:9,} {kind:6} {best:10.1f} {usual:10.1f}   {parts}", flush=True)
    return best, usual


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=256)
    workers = parser.parse_args().workers
    settings = EmulatorConfig(
        handler="benchmarks.handlers:answer",
        preload=("benchmarks.handlers",),
        python_path=(str(Path(__file__).parents[1]),),
        warm=workers,
        concurrency=workers,
    )
    missed = []
    print(f"{'bytes':>9} {'client':6} {'best, ms':>10} {'median, ms':>10}   processor time of a call, us")
    with Emulator(settings) as emulator:
        for size, bound_ms in BOUNDS_MS.items():
            best_ms, _ = play("ours", size, emulator, workers)
            boto3_ms, _ = play("boto3", size, emulator, workers)
            print(f"{'':9} {best_ms / boto3_ms:.2f} of boto3's; at most {bound_ms:g} ms", flush=True)
            missed += [size] if best_ms > bound_ms else []
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
