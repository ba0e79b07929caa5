"""Stretches live: four models on real digits, 64 calls in flight at most, real workers of the emulator.

    python -m benchmarks.live_stretch [--steps 40] [--K 10] [--copies 2]

Contestants, one after the other on one emulator: `stretch` with K steps a call and with all of them, `pipeline` with
n = 16 and s = 1, independent uncoded jobs (`pipeline` with n = 16 and s = 0, M at once), and a real map: boto3 in a
thread for each model, whose one call trains it from start to end. Told for each: what it took from its first call to
its last answer, the seconds billed, calls, dollars at list prices, and the largest relative difference of the weights
from those of the map.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from botocore.config import Config
from torch import Tensor

from gradmux.infra.lambda_place import LambdaPlace
from gradmux.infra.local.backend import FUNCTION, emulator_errors, local_place, start_emulator
from gradmux.lambda_worker.contract import Reply, Request, encode_request, parse_reply
from gradmux.orchestrator.demo.contest import LEARNING_RATES, MODELS
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.jobs import OpenPlan
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.prices import PRICES
from gradmux.orchestrator.runs.history import read_history
from gradmux.orchestrator.runs.keep import keep_job
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.runs.train import run_job
from gradmux.orchestrator.schemes.scheme import Task
from gradmux.orchestrator.store import Keys, open_bucket
from gradmux.orchestrator.training.data import put_dataset
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials
from gradmux.orchestrator.training.stretches import StretchResult
from gradmux.orchestrator.training.trainer import TorchTrainer

BATCH, CONCURRENCY, MEMORY_MB, TIMEOUT_S = 1024, 64, 2048, 600.0


@dataclass(frozen=True, slots=True)
class Took:
    """One contestant."""

    label: str
    wall_s: float
    billed_s: float
    calls: int
    weights: Tensor
    """of all models, end to end"""

    @property
    def usd(self) -> float:
        return PRICES.compute_usd(self.billed_s, MEMORY_MB) + PRICES.requests_usd(self.calls)

    def line(self, other: Took) -> str:
        difference = float((self.weights - other.weights).norm() / other.weights.norm())
        return (
            f"{self.label:<26} {self.wall_s:8.2f} s {self.billed_s:9.2f} s billed {self.calls:6d} calls "
            f"${self.usd:.6f}  weights differ by {difference:.1e}"
        )


def prepared(scheme: Mapping[str, Any], steps: int) -> Prepared:
    """The demonstration's models under this scheme."""
    models = [
        {**model, "optimizer": {"name": "Adam", "lr": rate}} for model, rate in zip(MODELS, LEARNING_RATES, strict=True)
    ]
    tree = {
        "name": "live",
        "cluster": {
            "workers": 16,
            "concurrency": CONCURRENCY,
            "memory_mb": MEMORY_MB,
            "timeout_s": TIMEOUT_S,
        },
        "scheme": dict(scheme),
        "data": {"train": "digits:train", "batch_size": BATCH},
        "training": {"steps": steps, "checkpoint_every": 0},
        "models": models,
    }
    return prepare_job(parse_job(tree, "live_stretch"), Materials(), Path.cwd(), open_bucket)


def ours(label: str, scheme: Mapping[str, Any], steps: int, place: LambdaPlace, home: Path) -> Took:
    """One of our schemes."""
    job = prepared(scheme, steps)
    paths = keep_job(job, home, Path.cwd())
    trained = run_job(job, place, paths)
    history = read_history(paths.record)
    weights = [each.double().flatten() for name in trained for each in trained[name].state_dict().values()]
    billed_s, calls = history.billed_s + history.beside.billed_s, history.invocations + history.beside.calls
    return Took(label, history.wall_s, billed_s, calls, torch.cat(weights))


def mapped(steps: int, place: LambdaPlace) -> Took:
    """One call for each model, which trains it from start to end, as a user of boto3 would write it."""
    job, store = prepared({"name": "stretch", "K": steps}, steps), place.store()
    plan, keys = OpenPlan([0] * len(MODELS), [steps] * len(MODELS)), Keys("live-map")
    trainer = TorchTrainer(job.models, plan, store=store, keys=keys, stepped=job.stepped)
    trainer.check(job.train)
    materials = RunMaterials(
        keys=keys,
        bucket=place.bucket,
        data=put_dataset(store, job.train),
        specs=trainer.put_specs(),
        orders=[job.order] * len(MODELS),
        weights=trainer.weights,
        state=trainer.state_of,
        stepped=job.stepped,
        passes=job.passes,
        seeds=trainer.seeds,
    )
    builder = RequestBuilder(materials, plan, np.ones(1))
    jobs = [plan.begin(model, steps) for model in range(len(MODELS))]
    for number in jobs:
        trainer.publish(number)
    requests = [builder.build(Invocation(n, n, 1, (Task(n, (0,), (1.0,)),), float(steps))) for n in jobs]
    start_s = time.perf_counter()
    replies = _invoke_all(requests, place)
    wall_s = time.perf_counter() - start_s
    for number, reply in zip(jobs, replies, strict=True):
        trainer.step(number, [(StretchResult.of(reply.results[0]), 1.0)])
    states = [each for model in jobs for each in trainer.module(model).state_dict().values()]
    billed_s = sum(reply.timing.compute_s + reply.timing.read_s + reply.timing.write_s for reply in replies)
    store.close()
    return Took(
        "map (boto3 threads)", wall_s, billed_s, len(jobs), torch.cat([each.double().flatten() for each in states])
    )


def _invoke_all(requests: Sequence[Request], place: LambdaPlace) -> list[Reply]:
    config = Config(read_timeout=TIMEOUT_S, retries={"max_attempts": 1}, max_pool_connections=len(requests))
    client = place.session().create_client("lambda", endpoint_url=place.lambda_url, config=config)

    def invoke(request: Request) -> Reply:
        answer = client.invoke(FunctionName=FUNCTION, Payload=encode_request(request))
        return parse_reply(answer["Payload"].read())

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(invoke, requests))


def main() -> None:
    """Plays them all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live_stretch", description=__doc__)
    parser.add_argument("--steps", type=int, default=40, help="of each model")
    parser.add_argument("--K", type=int, default=10, help="steps of a stretch")
    parser.add_argument("--copies", type=int, default=2, help="of a stretch")
    options = parser.parse_args()
    contestants = {
        f"stretch, K = {options.K}": {"name": "stretch", "K": options.K, "copies": options.copies},
        f"stretch, K = {options.steps}": {"name": "stretch", "K": options.steps, "copies": 1},
        "pipeline, n = 16, s = 1": {"name": "pipeline", "n": 16, "s": 1},
        "independent, n = 16": {"name": "pipeline", "n": 16, "s": 0},
    }
    settings = prepared(contestants[f"stretch, K = {options.K}"], options.steps).config
    with emulator_errors(), start_emulator(settings) as emulator, TemporaryDirectory() as home:
        place = local_place(emulator)
        base = mapped(options.steps, place)
        print(base.line(base), flush=True)
        for label, scheme in contestants.items():
            print(ours(label, scheme, options.steps, place, Path(home)).line(base), flush=True)


if __name__ == "__main__":
    main()
