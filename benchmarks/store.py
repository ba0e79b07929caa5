"""What objects in S3 cost the client: our store (obstore) beside stock boto3, and aiobotocore where it is installed.

Objects of 4 KB and of 4 MB are put, read whole (into Python's memory, or where the client has put them: a view), and
read in ranges of an eighth, 32 at a time (8 of the large ones), at the emulator's S3. Each client runs in a process of
its own. The best of a few rounds counts. Bound: a small object costs at most half of boto3's processor time; the exit
status says whether it held.

    python -m benchmarks.store [--rounds 5] [--peers PYTHON]     an interpreter that has aiobotocore; see `peers.py`
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session

from benchmarks.peers import peers_python, run_program
from gradmux.infra.closed_session import closed_session
from gradmux.infra.local import Emulator, EmulatorConfig

BUCKET, REGION = "bench", "us-east-1"
SMALL, LARGE = 4 << 10, 4 << 20
COUNTS = {SMALL: 512, LARGE: 32}
"""objects of a round, by size"""
AT_ONCE = {SMALL: 32, LARGE: 8}
PARTS = 8
MOST_SHARE = 0.5

Costs = dict[str, tuple[float, float]]
"""operation -> (wall time, processor time) of one request in microseconds, each the best of all rounds"""


@dataclass(frozen=True, slots=True)
class Where:
    """An S3 and the key to it."""

    url: str
    access_key: str
    secret_key: str

    def session(self) -> botocore.session.Session:
        return closed_session(REGION, self.access_key, self.secret_key)


AIOBOTOCORE = """
import asyncio, json, resource, time
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

def processor_s():
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime

async def main():
    config = AioConfig(s3={{"addressing_style": "path"}}, max_pool_connections={at_once},
        request_checksum_calculation="when_required", response_checksum_validation="when_required")
    data, part, found = bytes({size}), {size} // {parts}, {{}}
    async with get_session().create_client("s3", endpoint_url="{where.url}", region_name="{region}", config=config,
            aws_access_key_id="{where.access_key}", aws_secret_access_key="{where.secret_key}") as client:
        async def put(key):
            await client.put_object(Bucket="{bucket}", Key=key, Body=data)
        async def get(key):
            assert len(await (await client.get_object(Bucket="{bucket}", Key=key))["Body"].read()) == {size}
        async def get_range(key):
            answer = await client.get_object(Bucket="{bucket}", Key=key, Range=f"bytes={{part}}-{{2 * part - 1}}")
            assert len(await answer["Body"].read()) == part
        allowed = asyncio.Semaphore({at_once})
        async def one(use, key):
            async with allowed:
                await use(key)
        for use in (put, get, get_range):
            costs = []
            for _ in range({rounds}):
                began_s, spent_s = time.perf_counter(), processor_s()
                await asyncio.gather(*(one(use, f"peer/{{index}}") for index in range({count})))
                costs.append((time.perf_counter() - began_s, processor_s() - spent_s))
            found[use.__name__] = [min(each) / {count} * 1e6 for each in zip(*costs)]
    print("found", json.dumps(found))

asyncio.run(main())
"""


def operations(kind: str, where: Where, size: int) -> dict[str, Callable[[str], Any]]:
    """What one client does with one key."""
    part, data = size // PARTS, bytes(size)
    if kind == "ours":
        from gradmux.orchestrator.store import S3Store

        store = S3Store(BUCKET, endpoint_url=where.url, session=where.session())
        return {
            "put": lambda key: store.put(key, data),
            "get": store.get,
            "view": store.view,
            "get_range": lambda key: store.get_range(key, part, 2 * part),
        }
    client = boto3_client(where)

    def whole(key: str) -> bytes:
        body: bytes = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return body

    inner = f"bytes={part}-{2 * part - 1}"
    return {
        "put": lambda key: client.put_object(Bucket=BUCKET, Key=key, Body=data),
        "get": whole,
        "view": whole,
        "get_range": lambda key: client.get_object(Bucket=BUCKET, Key=key, Range=inner)["Body"].read(),
    }


def boto3_client(where: Where) -> Any:
    """A stock client with as many connections as are used."""
    import boto3
    from botocore.config import Config

    plain: Any = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    config = Config(max_pool_connections=max(AT_ONCE.values()), **plain)
    return boto3.Session(botocore_session=where.session()).client("s3", endpoint_url=where.url, config=config)


def measure(kind: str, where: Where, size: int, rounds: int) -> Costs:
    """In this process, which should be a fresh one."""
    keys = [f"{kind}/{index}" for index in range(COUNTS[size])]
    found: Costs = {}
    with ThreadPoolExecutor(AT_ONCE[size]) as threads:
        for name, use in operations(kind, where, size).items():
            costs = []
            for _ in range(rounds):
                began_s, spent_s = time.perf_counter(), processor_s()
                for _ in threads.map(use, keys):
                    pass
                costs.append((time.perf_counter() - began_s, processor_s() - spent_s))
            wall_s, cpu_s = (min(each) for each in zip(*costs, strict=True))
            found[name] = (wall_s / len(keys) * 1e6, cpu_s / len(keys) * 1e6)
    return found


def processor_s() -> float:
    """Processor time of this process so far, all threads."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def apart(kind: str, where: Where, size: int, rounds: int) -> Costs:
    """`measure` in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (kind, where, size, rounds))


def aiobotocores(where: Where, size: int, rounds: int, python: Path) -> Costs | str:
    """The same with aiobotocore, or why not."""
    program = AIOBOTOCORE.format(
        where=where, size=size, rounds=rounds, bucket=BUCKET, region=REGION, parts=PARTS, count=COUNTS[size],
        at_once=AT_ONCE[size],
    )  # fmt: skip
    said, trouble = run_program(program, "found", python)
    return trouble if said is None else json.loads(said)


def compare(where: Where, size: int, rounds: int, python: Path) -> float:
    """Prints the clients side by side; the largest share of boto3's processor time that ours takes."""
    costs: dict[str, Costs | str] = {kind: apart(kind, where, size, rounds) for kind in ("ours", "boto3")}
    costs["aiobotocore"] = aiobotocores(where, size, rounds, python)
    peer = costs["boto3"]
    assert not isinstance(peer, str)
    for kind, found in costs.items():
        if isinstance(found, str):
            print(f"{size:9,} {kind:12} {found}")
            continue
        for name, (wall_us, cpu_us) in found.items():
            share = cpu_us / peer[name][1]
            print(f"{size:9,} {kind:12} {name:10} {wall_us:12,.0f} {cpu_us:12,.0f} {share:9.2f}", flush=True)
    ours = costs["ours"]
    assert not isinstance(ours, str)
    return max(ours[name][1] / peer[name][1] for name in ours)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path, default=peers_python(), metavar="PYTHON", help="has aiobotocore")
    arguments = parser.parse_args()
    project = str(Path(__file__).parents[1])
    settings = EmulatorConfig(
        handler="benchmarks.handlers:answer", preload=("benchmarks.handlers",), python_path=(project,)
    )
    print(f"{'bytes':>9} {'client':12} {'request':10} {'wall, us':>12} {'CPU, us':>12} {'of boto3':>9}")
    with Emulator(settings) as emulator:
        where = Where(emulator.s3_endpoint, emulator.secret.access_key, emulator.secret.secret_key)
        boto3_client(where).create_bucket(Bucket=BUCKET)
        shares = {size: compare(where, size, arguments.rounds, arguments.peers) for size in COUNTS}
    if shares[SMALL] > MOST_SHARE:
        print(f"MISSED: a small object costs {shares[SMALL]:.2f} of boto3's processor time, not {MOST_SHARE}")
    return shares[SMALL] > MOST_SHARE


if __name__ == "__main__":
    sys.exit(main())
