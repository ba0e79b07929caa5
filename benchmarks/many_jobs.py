"""Twenty jobs at once on one emulator, with a limit that is smaller than their sum: all correct, and none left behind.

    python -m benchmarks.many_jobs [--jobs 20] [--workers 16] [--concurrency 128]

Each job is a `gradmux submit`, a process of its own; all of them reach the one emulator through AWS's variables, and
share the limit on calls in flight as jobs on one account do. Printed: whether every job's weights are
those of the same job alone, how many calls were in flight at most, and the slowest job's time over the fastest one's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import boto3

from gradmux.infra.local import DelayPlan, Emulator, EmulatorConfig
from gradmux.orchestrator.delays import generate
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.status import RunStatus, State, status_of

BUCKET = "many-jobs"
JOB = """
name = "many"
[cluster]
backend = "aws"
bucket = "{bucket}"
workers = {workers}
concurrency = {concurrency}
timeout_s = 60
[scheme]
name = "gc"
s = 1
[data]
train = "digits:train"
batch_size = 256
[training]
steps = {steps}
[[models]]
name = "mlp"
factory = "gradmux.orchestrator.demo.models:mlp"
args = {{ hidden = 16 }}
optimizer = {{ name = "Adam", lr = 1e-2 }}
[sweep]
"optimizer.lr" = [1e-2, 1e-3]
"""
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of all jobs."""

    statuses: list[RunStatus]
    equal: int
    """jobs whose weights are the bytes of the job that ran alone"""
    peak: int
    """most calls in flight at any instant, as the emulator counted them"""
    refused: int
    """429s"""
    wall_s: float

    @property
    def unfairness(self) -> float:
        """The slowest job's time over the fastest one's."""
        times = [status.wall_s for status in self.statuses]
        return max(times) / min(times)


class Submission(Protocol):
    """A process that trains."""

    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, str]: ...


def submit(folder: Path, words: Sequence[str], environment: Mapping[str, str]) -> Submission:
    """`gradmux WORDS` on its way."""
    return subprocess.Popen(
        [sys.executable, "-c", "from gradmux.cli.main import main; main()", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_many(
    folder: Path,
    jobs: int,
    workers: int,
    concurrency: int,
    steps: int,
    submit: Callable[[Path, Sequence[str], Mapping[str, str]], Submission] = submit,
) -> Outcome:
    """All jobs at once, after one alone."""
    job = folder / "job.toml"
    job.write_text(JOB.format(bucket=BUCKET, workers=workers, concurrency=concurrency, steps=steps))
    profile = generate("lambda-like", rounds=steps, workers=workers, seed=1)
    delays = DelayPlan.of(profile.delays_s.tolist(), time_scale=0.02)
    config = EmulatorConfig(concurrency=concurrency, warm=workers, delays=delays)
    with Emulator(config) as emulator:
        environment = {**os.environ, **emulator.environment()}
        make_bucket(emulator)
        words = ["submit", str(job), "--json", "--quiet", "--home"]
        (alone,) = wait_for([submit(folder, [*words, str(folder / "alone")], environment)])
        before = emulator.statistics()
        began_s = time.monotonic()
        runs = [submit(folder, [*words, str(folder / "together")], environment) for _ in range(jobs)]
        finished = wait_for(runs)
        after = emulator.statistics()
        wall_s = time.monotonic() - began_s
    expected = weights_of(alone)
    return Outcome(
        statuses=[status_of(paths) for paths in finished],
        equal=sum(weights_of(paths) == expected for paths in finished),
        peak=after["peak_in_flight"],
        refused=sum(after["refused"].values()) - sum(before["refused"].values()),
        wall_s=wall_s,
    )


def make_bucket(emulator: Emulator) -> None:
    variables = emulator.environment()
    session = boto3.Session(
        variables["AWS_ACCESS_KEY_ID"],
        variables["AWS_SECRET_ACCESS_KEY"],
        variables["AWS_SESSION_TOKEN"],
        variables["AWS_REGION"],
    )
    session.client("s3", endpoint_url=emulator.s3_endpoint).create_bucket(Bucket=BUCKET)


def wait_for(submissions: Sequence[Submission]) -> list[RunPaths]:
    """The runs, when all of them are done."""
    said = [json.loads(submission.communicate(timeout=LIMIT_S)[0]) for submission in submissions]
    return [RunPaths(Path(each["record"]).parent) for each in said]


def weights_of(paths: RunPaths) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in paths.weights("").parent.glob("*.safetensors")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=128)
    parser.add_argument("--steps", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gradmux-many-") as folder:
        outcome = run_many(Path(folder), arguments.jobs, arguments.workers, arguments.concurrency, arguments.steps)
    done = sum(status.state is State.DONE for status in outcome.statuses)
    print(
        f"{arguments.jobs} jobs of {arguments.workers} workers at once in {outcome.wall_s:.1f} s: {done} done, "
        f"{outcome.equal} with the bytes of the job alone; {outcome.peak} calls in flight at most "
        f"(limit {arguments.concurrency}), {outcome.refused} refused; slowest over fastest x {outcome.unfairness:.2f}"
    )
    return 0 if done == outcome.equal == arguments.jobs else 1


if __name__ == "__main__":
    sys.exit(main())
