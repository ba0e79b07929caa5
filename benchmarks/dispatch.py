"""What it costs to invoke many workers at once: our fleet, the same over aiohttp, stock boto3, a raw socket client.

Every worker of one light endpoint answers after 300 ms, so what a round takes beyond that is the client's own time.
Each client runs in a process of its own, warmed up by one round. Bounds: our overhead, in the best of a few rounds, at
most 1/5 of boto3's at 256 workers and 1/8 at 1,000, and 0.15 ms of processor time for each invocation (median); the
exit status says whether they held. Then the same over TLS, and 256 tasks that do nothing on other systems, when they
are installed.

    python -m benchmarks.dispatch [--peers PYTHON]     an interpreter that has lithops or ray; see `peers.py`
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import ipaddress
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.aiohttp_fleet import AiohttpFleet
from benchmarks.boto3_fleet import Boto3Fleet
from benchmarks.light_lambda import RUN, Requests, invocations, light_lambda
from benchmarks.peers import PEERS, peers_python, time_of
from gradmux.orchestrator.fleets.calling import Function, request_body
from gradmux.orchestrator.fleets.http_dial import allow_descriptors
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.fleets.warming import memory_settled
from gradmux.orchestrator.store import MemoryStore

DELAY_S = 0.3
BOUNDS = {256: 1 / 5, 1000: 1 / 8}
MOST_CPU_MS = 0.15
THREADS = 256
"""of boto3"""
NOTHING_TASKS = 256
OVER = {"ours": LambdaFleet, "aiohttp": AiohttpFleet}
"""our fleet, by HTTP client"""

Play = Callable[[int], None]
"""One round, by its number."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one round."""

    best_ms: float
    """beyond the workers' own time: the best of all rounds, which others on this machine disturb least"""
    overhead_ms: float
    """the same, median"""
    cpu_ms: float
    """of the client's process, for each invocation, median"""


def fleet_rounds(kind: str, url: str, count: int) -> tuple[Play, Callable[[], None]]:
    """Rounds of one of the fleets, and what closes it."""
    if kind in OVER:
        fleet: Any = OVER[kind](Function("worker"), Requests(), MemoryStore(), run=RUN, endpoint_url=url)
    else:
        fleet = Boto3Fleet(
            Function("worker"), Requests(), MemoryStore(), run=RUN, endpoint_url=url, threads=min(count, THREADS)
        )

    def play(round: int) -> None:
        fleet.invoke(invocations(count, round))
        arrivals = list(iter(lambda: fleet.next(None), None))
        assert [arrival.slots for arrival in arrivals] == [(0,)] * count, arrivals[0].error

    return play, fleet.close


def raw_rounds(url: str, count: int) -> Play:
    """The floor: one event loop, requests made beforehand, answers read to their length and not looked into."""
    loop, port = asyncio.new_event_loop(), urlsplit(url).port
    body = request_body(Requests().build(invocations(1)[0]))
    raw = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    class Answer(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.done, self.left = transport, loop.create_future(), 0

        def data_received(self, data: bytes) -> None:
            if not self.left:
                head, _, data = data.partition(b"\r\n\r\n")
                self.left = int(head.rpartition(b": ")[2])
            self.left -= len(data)
            if not self.left:
                self.done.set_result(None)

    async def connect() -> list[Answer]:
        pairs = await asyncio.gather(*(loop.create_connection(Answer, "127.0.0.1", port) for _ in range(count)))
        return [answer for _, answer in pairs]

    answers = loop.run_until_complete(connect())

    async def ask() -> None:
        for answer in answers:
            answer.done = loop.create_future()
            answer.transport.write(raw)
        await asyncio.gather(*(answer.done for answer in answers))

    return lambda round: loop.run_until_complete(ask())


def measure(kind: str, url: str, count: int, rounds: int, authority: str | None = None) -> Cost:
    """Plays rounds in this process, which should be a fresh one."""
    allow_descriptors()
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}
    os.environ |= {} if authority is None else {"AWS_CA_BUNDLE": authority}
    play, close = (raw_rounds(url, count), None) if kind == "raw" else fleet_rounds(kind, url, count)
    play(0)
    walls, cpus = [], []
    with memory_settled():  # as a run does
        for round in range(1, rounds + 1):
            wall, cpu = time.perf_counter(), time.process_time()
            play(round)
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
    if close is not None:
        close()
    return Cost((min(walls) - DELAY_S) * 1e3, (median(walls) - DELAY_S) * 1e3, median(cpus) / count * 1e3)


def apart(*arguments: Any) -> Cost:
    """`measure` in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, arguments)


def compare(count: int) -> list[str]:
    """Prints the clients side by side; the bounds that were missed."""
    rounds = {"ours": 12, "aiohttp": 8, "boto3": 5, "raw": 8}
    with light_lambda(DELAY_S) as url:
        costs = {kind: apart(kind, url, count, rounds[kind]) for kind in rounds}
    show(count, costs)
    share, cpu = costs["ours"].best_ms / costs["boto3"].best_ms, costs["ours"].cpu_ms
    missed = [] if share <= BOUNDS[count] else [f"{count}: overhead is {share:.3f} of boto3's, not {BOUNDS[count]:.3f}"]
    return missed + ([] if cpu <= MOST_CPU_MS else [f"{count}: {cpu:.3f} ms of processor for each invocation"])


def over_tls(count: int) -> None:
    """The same, encrypted."""
    with tempfile.TemporaryDirectory() as folder:
        certificate = make_certificate(Path(folder))
        with light_lambda(DELAY_S, certificate=certificate) as url:
            costs = {kind: apart(kind, url, count, 5, str(certificate)) for kind in ("ours", "aiohttp", "boto3")}
    show(count, {f"{kind}, TLS": cost for kind, cost in costs.items()})


def show(count: int, costs: dict[str, Cost]) -> None:
    """One line for each client; the ratio is of best overheads to that of boto3."""
    peer = next(cost for kind, cost in costs.items() if kind.startswith("boto3"))
    for kind, cost in costs.items():
        figures = f"{cost.best_ms:12.1f} {cost.overhead_ms:10.1f} {cost.cpu_ms:13.3f}"
        print(f"{count:6,} {kind:10} {figures} {cost.best_ms / peer.best_ms:9.3f}", flush=True)


def make_certificate(folder: Path) -> Path:
    """A PEM file for 127.0.0.1, signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "light lambda")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path = folder / "certificate.pem"
    path.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, kind, serialization.NoEncryption()))
    return path


def nothing_tasks(python: Path) -> None:
    """How long other systems take for tasks that do nothing, beside ours over the light endpoint."""
    with light_lambda() as url:
        ours = apart("ours", url, NOTHING_TASKS, 12)
    ours_ms = ours.best_ms + DELAY_S * 1e3
    print(f"\n{NOTHING_TASKS} tasks that do nothing, ms\n{'ours, light endpoint':32} {ours_ms:10.1f}")
    for name in PEERS:
        found = time_of(name, NOTHING_TASKS, python)
        told = found if isinstance(found, str) else f"{found * 1e3:10.1f}   {found * 1e3 / ours_ms:.0f} times ours"
        print(f"{name:32} {told}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=peers_python(), metavar="PYTHON", help="has Lithops and Ray")
    arguments = parser.parse_args()
    print(f"{'n':>6} {'client':10} {'beyond, ms':>12} {'median':>10} {'CPU/call, ms':>13} {'of boto3':>9}")
    missed = [line for count in BOUNDS for line in compare(count)]
    over_tls(256)
    nothing_tasks(arguments.peers)
    for line in missed:
        print(f"MISSED {line}")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
