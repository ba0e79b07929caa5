"""Runs benchmarks one after the other, each in a process of its own: `make bench`, or `make bench ARGS="combine lazy"`.

Names given as arguments choose among all of them; without any, those that take at most some minutes each are run. One
that misses its bound or fails does not stop the others. What is measured against which peer, each says itself;
docs/performance.md has the figures.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

USUAL = (
    "workers_ready",
    "dispatch",
    "replies",
    "combine",
    "cloud_aggregation",
    "store",
    "endurance",
    "scaling",
    "decode_check",
    "loop_against_simulator",
    "live_pipeline",
    "live_stretch",
    "contract",
    "data",
    "client_memory",
    "exactness_cost",
    "evaluator",
    "auto",
    "tuning_transfer",
    "schemes_on_profiles",
    "worth",
    "lazy",
    "stability",
    "profile_calibration",
)
LONG = ("soak", "many_jobs", "pipeline_variants", "large_set")
"""run when they are asked for"""
INTERRUPTED = 130

Run = Callable[[str], int]
"""Runs one benchmark by its name; its exit status."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of one benchmark."""

    name: str
    status: int
    seconds: float

    def describe(self) -> str:
        """One line."""
        if self.status == 0:
            word = "done"
        else:
            word = "missed its bound or failed" if self.status == 1 else f"failed (exit status {self.status})"
        return f"{self.name}: {word}, {self.seconds:.0f} s"


def main(arguments: Sequence[str], run: Run) -> int:
    """0 when all that ran have held; 1 otherwise, 2 for names that there are not, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Our figures beside those of our peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(USUAL)}; or {', '.join(LONG)}")
    parser.add_argument("--list", action="store_true", help="say what each measures, and run none")
    asked = parser.parse_args(arguments)
    names = asked.names or ([*USUAL, *LONG] if asked.list else USUAL)
    unknown = [name for name in names if name not in (*USUAL, *LONG)]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; choose from {', '.join((*USUAL, *LONG))}", file=sys.stderr)
        return 2
    if asked.list:
        print("\n".join(f"{name:24} {purpose(name)}" for name in names))
        return 0
    return run_all(names, run)


def run_all(names: Sequence[str], run: Run) -> int:
    """Announces and runs each; ends with what became of them."""
    ended: list[Ended] = []
    interrupted = False
    for number, name in enumerate(names, start=1):
        print(f"\n== {name} ({number} of {len(names)}): {purpose(name)}", flush=True)
        began_s = time.monotonic()
        try:
            status = run(name)
        except KeyboardInterrupt:
            interrupted = True
            break
        ended.append(Ended(name, status, time.monotonic() - began_s))
        print(f"-- {ended[-1].describe()}", flush=True)
    bad = [each for each in ended if each.status]
    took_min = sum(each.seconds for each in ended) / 60
    print(f"\n{len(ended)} of {len(names)} benchmarks took {took_min:.0f} min; {len(bad)} missed a bound or failed")
    for each in bad:
        print(f"  {each.describe()}")
    return INTERRUPTED if interrupted else int(bool(bad))


def purpose(name: str) -> str:
    """The first line of what a benchmark says of itself, without running it."""
    said = ast.get_docstring(ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")))
    assert said is not None
    return said.partition("\n")[0]


def run_apart(name: str) -> int:
    """In a process of its own."""
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], run_apart))
