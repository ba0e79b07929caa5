"""How fast 256 torch workers are ready, and how much memory they need after each has trained a little.

Beside it the naive way: a fresh `python -c "import torch"` process for every worker, timed for two and extrapolated.

    python -m benchmarks.workers_ready [--workers 256]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from gradmux.infra.local import Emulator, EmulatorConfig

NAIVE_PROCESSES = 2
CALLERS = 16
NAIVE_PROGRAM = """
import sys, torch
torch.set_num_threads(1)
print("ready", flush=True)
sys.stdin.read()
"""


def train_step(event: dict[str, Any], context: Any) -> float:
    """The handler: one step of a small CNN on 32 images of 28 x 28; the loss."""
    import torch
    from torch import nn

    torch.manual_seed(event["worker"])
    features = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*features, nn.Flatten(), nn.Linear(32 * 5 * 5, 10))
    images_BCHW, labels_B = torch.randn(32, 1, 28, 28), torch.randint(10, (32,))
    loss = nn.functional.cross_entropy(model(images_BCHW), labels_B)
    torch.autograd.backward(loss)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad, alpha=0.1)
    return loss.item()


def pss_mb(pid: int) -> float:
    """Proportional set size of a process, MB: shared pages count in shares, so the sum over processes is their use."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no Pss line for process {pid}")


def train_on(emulator: Emulator, workers: range) -> None:
    """Lets these workers train one step each, one after the other."""
    config, secret = emulator.config, emulator.secret
    target = f"/2015-03-31/functions/{config.function}/invocations"
    auth = SigV4Auth(Credentials(secret.access_key, secret.secret_key), "lambda", config.region)
    connection = HTTPConnection("127.0.0.1", emulator.started.lambda_port, timeout=120)
    for worker in workers:
        event = json.dumps({"round": 0, "worker": worker, "attempt": 1, "load": 0.0})
        request = AWSRequest("POST", emulator.lambda_endpoint + target, data=event)
        auth.add_auth(request)
        connection.request("POST", target, event, dict(request.headers))
        response = connection.getresponse()
        body = response.read()
        if response.status != 200 or response.getheader("X-Amz-Function-Error"):
            raise RuntimeError(f"worker {worker} did not train: {body[:200]!r}")
    connection.close()


def forked(workers: int) -> dict[str, float]:
    """Our way: workers forked from a warmed zygote."""
    began = time.perf_counter()
    config = EmulatorConfig(
        handler="benchmarks.workers_ready:train_step",
        preload=("torch",),
        concurrency=workers,
        python_path=(str(Path(__file__).parents[1]),),
    )
    with Emulator(config) as emulator:
        up = time.perf_counter()
        emulator.admin.warm(workers)
        ready = time.perf_counter()
        with ThreadPoolExecutor(CALLERS) as callers:
            shares = [range(first, workers, CALLERS) for first in range(CALLERS)]
            list(callers.map(lambda share: train_on(emulator, share), shares))
        trained = time.perf_counter()
        pids = [emulator.started.processes["zygote"][0], *(each["pid"] for each in emulator.admin.sandboxes())]
        memory_mb = sum(pss_mb(pid) for pid in pids)
        if len(pids) != workers + 1 or emulator.statistics()["cold_starts"]:
            raise RuntimeError(f"expected {workers} warm workers, saw {emulator.statistics()}")
    return {"start_s": up - began, "ready_s": ready - up, "train_s": trained - ready, "pss_mb": memory_mb}


def naive(workers: int) -> dict[str, float]:
    """The other way: a fresh interpreter for each worker. Measures a few, multiplies."""
    began = time.perf_counter()
    command = [sys.executable, "-c", NAIVE_PROGRAM]
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        for _ in range(NAIVE_PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    elapsed = time.perf_counter() - began
    memory_mb = sum(private_mb(process.pid) for process in processes) / NAIVE_PROCESSES
    for process in processes:
        process.communicate()
    scale = workers / NAIVE_PROCESSES
    return {"measured_s": elapsed, "ready_s": elapsed * scale, "pss_mb": memory_mb * workers}


def private_mb(pid: int) -> float:
    """Memory that another process more of the same kind would add, MB."""
    fields = dict(line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1024


def main() -> None:
    """Prints both ways and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=256)
    workers = parser.parse_args().workers
    subprocess.run([sys.executable, "-c", "import torch"], check=True)  # both ways find torch in the page cache
    ours, theirs = forked(workers), naive(workers)
    print(f"{workers} torch workers, {os.cpu_count()} processors")
    print(f"  forked from a warm zygote  {ours['ready_s']:8.2f} s to be ready (and {ours['start_s']:.2f} s before it)")
    print(f"    all have trained a CNN   {ours['train_s']:8.2f} s later; {ours['pss_mb'] / 1024:.2f} GB in all (PSS)")
    print(
        f"  fresh interpreters         {theirs['ready_s']:8.2f} s, extrapolated from {NAIVE_PROCESSES} "
        f"in {theirs['measured_s']:.2f} s; {theirs['pss_mb'] / 1024:.2f} GB before training, extrapolated"
    )
    print(
        f"  ratio                      {ours['ready_s'] / theirs['ready_s']:8.4f} of the time, "
        f"{ours['pss_mb'] / theirs['pss_mb']:.2f} of the memory"
    )


if __name__ == "__main__":
    main()
