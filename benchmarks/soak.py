"""Jobs under all faults at once, their orchestrator killed at random instants and resumed: nothing lost, nothing twice.

    python -m benchmarks.soak --minutes 20

Each job is trained twice: once undisturbed, once with workers that crash, hang, run out of memory, are throttled or
answer rubbish, an S3 that says slow down and loses snapshots, and an orchestrator that gets kill -9, Ctrl-C, `cancel`
or a few seconds of sleep (SIGSTOP) at random instants. It ends when the weights of both are the same bytes and the
record shows every gradient applied exactly once; else the exit code is 1. Faults that make a life give up are resumed
as a user would. Every number that is printed was counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gradmux.infra.local import AdminClient, EmulatorError
from gradmux.infra.local.secret import Secret
from gradmux.orchestrator.disk import write_whole
from gradmux.orchestrator.record import Header, read_record
from gradmux.orchestrator.runs.history import DONE, read_history
from gradmux.orchestrator.runs.life import last_life
from gradmux.orchestrator.runs.lock import is_held
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.status import State, status_of

MODELS = """
from torch import nn

def normed(hidden):
    first = [nn.Linear(64, hidden), nn.BatchNorm1d(hidden), nn.Tanh(), nn.Dropout(0.2)]
    return nn.Sequential(*first, nn.Linear(hidden, 10))

def wide(hidden):
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
"""
JOB = """
name = "soak"
[cluster]
workers = {workers}
timeout_s = 90
attempts = 10
[scheme]
{scheme}
[data]
train = "digits:train"
batch_size = 128
[training]
steps = {steps}
checkpoint_every = 2
[[models]]
name = "normed"
factory = "soak_models:normed"
args = {{ hidden = 16 }}
optimizer = {{ name = "Adam", lr = 1e-2 }}
scheduler = {{ name = "StepLR", step_size = 5 }}
[[models]]
name = "wide"
factory = "soak_models:wide"
args = {{ hidden = 192 }}
optimizer = {{ name = "SGD", lr = 0.1, momentum = 0.9 }}
[emulator]
delays = "lambda-like"
time_scale = 0.02
seed = {seed}
"""
SCHEMES = (
    'name = "gc"\ns = 1',
    'name = "m-sgc"\nB = 1\nW = 2\nlambda = 2',
    'name = "pipeline"\nn = 6\ns = 1',
    'name = "sr-sgc"\nB = 1\nW = 2\nlambda = 3',
    'name = "uncoded"',
)
FAULTS = (
    "crash=0.02,error=0.01,oom=0.01,timeout=0.01,init=0.01,throttle=0.05,500=0.02,503=0.02,expired=0.02,"
    "truncate=0.02,corrupt=0.02,stale=0.02,slowdown=0.05,lost=0.05"
)
LOOK_S = 0.2
DURING_TRAINING = 0.8
"""share of blows that wait until the life has begun to train; the others may come while it starts"""
START_S = 60.0
SLEEP_S = 2.0
BLOWS = ("kill -9", "kill -9", "kill -9", "Ctrl-C", "sleep", "cancel")
"""What happens to an orchestrator; most often the worst."""


@dataclass
class Tally:
    """What was counted."""

    jobs: int = 0
    lives: int = 0
    gradients: int = 0
    """applied, each once"""
    redone: int = 0
    """computed again because a life ended before its next checkpoint"""
    lost: int = 0
    """gradients that no life has applied for good"""
    twice: int = 0
    """gradients that were applied to weights that had them already"""
    invocations: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    """by kind, as the emulators counted them until they were last asked"""
    blows: Counter[str] = field(default_factory=Counter)
    """to the orchestrator"""
    gave_up: int = 0
    """lives that ended by themselves, resumably"""
    read_bytes: int = 0
    """by the orchestrators, from sockets and files"""
    written_bytes: int = 0
    wrong: list[str] = field(default_factory=list)
    """jobs whose weights or records are not as they must be"""

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "faults": dict(self.faults), "blows": dict(self.blows)}


def gradmux(*words: str) -> dict[str, Any] | None:
    """Runs one command line; its JSON document, or None when it failed (which a run that is just ending may)."""
    code = "from gradmux.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, *words, "--json"], capture_output=True, text=True, check=False, timeout=300
    )
    if ran.returncode != 0:
        print(f"gradmux {words[0]}: exit code {ran.returncode}: {ran.stderr.strip()}", file=sys.stderr, flush=True)
        return None
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


@dataclass
class Soak:
    """One soak in a folder of its own."""

    folder: Path
    randomness: random.Random
    gradmux: Callable[..., dict[str, Any] | None] = gradmux
    """runs a command line: `submit --detach`, `resume --detach`, `cancel`"""
    workers: int = 8
    steps: int = 40
    blow_s: tuple[float, float] = (0.2, 4.0)
    """a life is left alone for so long, between: most often counted from when it began to train"""
    tally: Tally = field(default_factory=Tally)

    def run(self, minutes: float, schemes: Sequence[str] = SCHEMES) -> Tally:
        """Job after job, until the time is over; the last one is brought to its end in peace."""
        end_s = time.monotonic() + 60 * minutes
        while time.monotonic() < end_s:
            scheme = schemes[self.tally.jobs % len(schemes)]
            name = scheme.partition('"')[2].partition('"')[0]
            told = self.pair(scheme, lambda: time.monotonic() > end_s)
            print(f"{time.strftime('%H:%M:%S')} {name}: {told}", file=sys.stderr, flush=True)
        return self.tally

    def pair(self, scheme: str, peace: Callable[[], bool]) -> str:
        """One job twice, undisturbed and disturbed, until there is peace; one line about it."""
        (self.folder / "soak_models.py").write_text(MODELS)
        job = self.folder / "job.toml"
        job.write_text(JOB.format(workers=self.workers, steps=self.steps, scheme=scheme, seed=self.tally.jobs))
        calm = self.submit(job, "calm")
        self.wait_for_end(calm)
        troubled = self.submit(job, "troubled", "--faults", FAULTS)
        self.torment(troubled, peace)
        self.tally.jobs += 1
        return self.compare(calm, troubled)

    def submit(self, job: Path, home: str, *more: str) -> RunPaths:
        """A detached run."""
        told = self.gradmux("submit", str(job), "--detach", "--home", str(self.folder / home), *more)
        assert told is not None, "a job could not be submitted"
        self.tally.lives += home == "troubled"
        return RunPaths(Path(told["log"]).parent)

    def torment(self, paths: RunPaths, peace: Callable[[], bool]) -> None:
        """Blow after blow, until the run is done; when there is peace, none."""
        while True:
            watch = Watch(paths, self.tally)
            pause_s = self.randomness.uniform(*self.blow_s)
            if peace():
                watch.until_ended(None)
            elif self.randomness.random() < DURING_TRAINING:
                watch.until_ended(START_S, or_trains=True)
            watch.until_ended(pause_s)
            if is_held(paths.lock):
                self.strike(paths)
                watch.until_ended(START_S)
            else:
                self.tally.gave_up += status_of(paths).state is not State.DONE
            if status_of(paths).state is State.DONE:
                return
            self.tally.lives += self.gradmux("resume", str(paths.folder), "--detach") is not None

    def strike(self, paths: RunPaths) -> None:
        """One blow. The process that it hits is the one that holds the lock."""
        life, blow = last_life(paths), self.randomness.choice(BLOWS)
        assert life is not None
        self.tally.blows[blow] += 1
        if blow == "cancel":
            self.gradmux("cancel", str(paths.folder))
        elif blow == "sleep":
            send(life.pid, signal.SIGSTOP)
            time.sleep(SLEEP_S)
            send(life.pid, signal.SIGCONT)
            time.sleep(self.randomness.uniform(*self.blow_s) / 2)
            send(life.pid, signal.SIGKILL)
        else:
            send(life.pid, signal.SIGKILL if blow == "kill -9" else signal.SIGINT)

    def wait_for_end(self, paths: RunPaths) -> None:
        while is_held(paths.lock):
            time.sleep(LOOK_S)
        state = status_of(paths).state
        assert state is State.DONE, f"the undisturbed run is {state}"

    def compare(self, calm: RunPaths, troubled: RunPaths) -> str:
        """Are the weights the same bytes, and was every gradient applied exactly once?"""
        lost, twice = audit(troubled, [self.steps] * len(weights_of(calm)))
        self.tally.lost += lost
        self.tally.twice += twice
        history = read_history(troubled.record)
        weights, expected = (weights_of(paths) for paths in (troubled, calm))
        self.tally.gradients += sum(history.steps)
        self.tally.redone += history.redone
        self.tally.invocations += history.invocations
        same = weights == expected and len(weights) == len(history.steps)
        if not same or lost or twice:
            self.tally.wrong.append(troubled.run)
        ended = f"{history.lives} lives, {sum(history.steps)} gradients, {history.redone} computed again"
        return f"{ended}, weights {'the same bytes' if same else 'DIFFERENT'}"


def audit(paths: RunPaths, steps: Sequence[int]) -> tuple[int, int]:
    """(gradients lost, gradients counted twice) of a run, from its record and nothing else.

    A life begins with the steps that its checkpoint had; what the life before had done beyond is not in the weights.
    """
    applied: set[tuple[int, int]] = set()
    twice = 0
    for line in read_record(paths.record):
        if isinstance(line, Header):
            applied = {(model, step) for model, step in applied if step < line.extra[DONE][model]}
            continue
        for decoded in line.decoded:
            twice += (decoded.model, decoded.step) in applied
            applied.add((decoded.model, decoded.step))
    wanted = {(model, step) for model, count in enumerate(steps) for step in range(count)}
    return len(wanted - applied), twice


class Watch:
    """Looks at a run while it goes on: faults of its emulator, bytes of its process."""

    def __init__(self, paths: RunPaths, tally: Tally) -> None:
        self._paths, self._tally = paths, tally
        self._faults: Mapping[str, int] = {}
        self._bytes = (0, 0)
        self._record_size = record_size(paths)

    def until_ended(self, limit_s: float | None, or_trains: bool = False) -> None:
        """Returns when nothing runs it any more, after `limit_s`, or when this life has written to its record."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while is_held(self._paths.lock) and (deadline is None or time.monotonic() < deadline):
            self._look()
            if or_trains and record_size(self._paths) > self._record_size:
                return
            time.sleep(LOOK_S)
        self._look()

    def _look(self) -> None:
        """Counts what is new since the last look at this life."""
        life = last_life(self._paths)
        if life is None or life.place is None or life.place.own.get("lambda_url") is None:
            return
        ports = [int(str(url).rpartition(":")[2]) for url in (life.place.own["lambda_url"], life.place.own["s3_url"])]
        secret = Secret(*life.place.own.get("access", ("", "")))
        try:
            faults = AdminClient(ports[0], ports[1], secret, timeout_s=2.0).statistics()["faults"]
            io = psutil.Process(life.pid).io_counters()
        except (EmulatorError, psutil.Error, ValueError):
            return
        self._tally.faults.update({kind: count - self._faults.get(kind, 0) for kind, count in faults.items()})
        self._tally.read_bytes += io.read_chars - self._bytes[0]
        self._tally.written_bytes += io.write_chars - self._bytes[1]
        self._faults, self._bytes = faults, (io.read_chars, io.write_chars)


def record_size(paths: RunPaths) -> int:
    """Bytes; 0 when there is no record yet."""
    return paths.record.stat().st_size if paths.record.exists() else 0


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def weights_of(paths: RunPaths) -> dict[str, bytes]:
    """The trained weights, as bytes."""
    return {path.stem: path.read_bytes() for path in paths.weights("").parent.glob("*.safetensors")}


def describe(tally: Tally, minutes: float) -> str:
    """For people."""
    blows = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.blows.items())) or "none"
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(tally.faults.items())) or "none"
    lines = [
        f"{tally.jobs} jobs in {minutes:.1f} minutes, {tally.lives} lives of orchestrators, {tally.gave_up} gave up",
        f"blows to the orchestrator: {sum(tally.blows.values())} ({blows})",
        f"faults injected: {sum(tally.faults.values())} ({faults})",
        f"{tally.invocations} invocations; the orchestrators read {tally.read_bytes / 1e6:.0f} MB and wrote "
        f"{tally.written_bytes / 1e6:.0f} MB",
        f"gradients applied: {tally.gradients}; computed again: {tally.redone}; "
        f"lost: {tally.lost}; counted twice: {tally.twice}",
        f"weights differ from the undisturbed run's in {len(tally.wrong)} of {tally.jobs} jobs",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40, help="of each model of each job")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    arguments = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gradmux-soak-") as folder:
        soak = Soak(Path(folder), random.Random(arguments.seed), steps=arguments.steps)
        tally = soak.run(arguments.minutes)
    minutes = (time.monotonic() - began_s) / 60
    print(describe(tally, minutes))
    if arguments.json is not None:
        write_whole(arguments.json, [json.dumps({"minutes": minutes, **tally.to_dict()}, indent=2).encode()])
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
