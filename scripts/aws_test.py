"""`make aws-test`: all of gradmux in your AWS account, once: deploy, conform, a job, its bill, destroy, nothing left.

Asks first. Under $0.50: the image's build (CodeBuild, about 10 minutes of its smallest machine) is most of it. Whatever
fails in between, what was made is destroyed at the end, the bucket with its data too: it has a name of its own.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT_USD = 0.50
TOLERANCE = 0.02
"""of the bill against its lines: /tmp over 512 MB and rounding"""
BUILD_USD = 0.10
"""CodeBuild: general1.small at $0.005 a minute, 20 minutes at most"""
JOB = """
name = "aws-test"
[cluster]
backend = "aws"
function = "{function}"
bucket = "{bucket}"
workers = 8
memory_mb = 2048
max_cost_usd = 0.10
[scheme]
name = "m-sgc"
B = 1
W = 2
lambda = 2
[data]
train = "digits:train"
eval = "digits:test"
batch_size = 512
[training]
steps = 20
loss = "cross_entropy"
[[models]]
name = "linear"
factory = "torch.nn:Linear"
args = {{ in_features = 64, out_features = 10 }}
optimizer = {{ name = "Adam", lr = 1e-2 }}
"""
QUESTION = (
    "This deploys gradmux as {name} into your AWS account, runs its checks and a job of 160 calls, and removes all of "
    f"it again. It costs less than ${LIMIT_USD:.2f}. Go on? [y/N] "
)
Gradmux = Callable[[Sequence[str], Path], "Ran"]


@dataclass(frozen=True)
class Ran:
    """One command."""

    code: int
    out: str


class Failed(Exception):
    """A step failed. One line."""


@dataclass
class Trial:
    """One pass through the account."""

    gradmux: Gradmux
    folder: Path
    name: str
    say: Callable[[str], None] = print
    cost_usd: float = 0.0
    done: list[str] = field(default_factory=list)

    def run(self) -> int:
        """0 when every step went well and nothing is left."""
        code = 0
        try:
            self.steps()
        except Failed as failure:
            self.say(f"aws-test: {failure}")
            code = 1
        finally:
            code = max(code, self.leave_nothing())
        return code

    def steps(self) -> None:
        """Up to the bill."""
        deployed = self.ask("deploy", "--name", self.name, "--json")
        function, bucket = deployed["function"], deployed["bucket"]
        report = str(self.folder / "conform.json")
        self.do("conform", "--function", function, "--bucket", bucket, "--report", report)
        job = self.folder / "job.toml"
        job.write_text(JOB.format(function=function, bucket=bucket))
        self.do("doctor", str(job))
        run = self.ask("submit", str(job), "--json")["run"]
        self.bill(self.ask("cost", run, "--json"))

    def bill(self, told: dict[str, Any]) -> None:
        """What the job comes to, against what Lambda's own reports add up to, and against what was promised."""
        total, prices = told["total"], told["prices"]
        lines = total["billed_s"] + total["beside_s"], total["invocations"] + total["beside"]
        by_lines = lines[0] * told["memory_mb"] / 1024 * prices["gb_s"] + lines[1] * prices["million_requests"] / 1e6
        self.cost_usd = total["usd"] + BUILD_USD
        self.say(
            f"aws-test: the job cost ${total['usd']:.4f}: {lines[0]:.1f} s in {lines[1]} calls come to ${by_lines:.4f} "
            f"at list prices; with the build at most ${self.cost_usd:.2f}"
        )
        if abs(by_lines - total["usd"]) > TOLERANCE * max(by_lines, total["usd"]):
            raise Failed(f"the bill says ${total['usd']:.6f}, its lines come to ${by_lines:.6f}")
        if self.cost_usd > LIMIT_USD:
            raise Failed(f"${self.cost_usd:.2f} is more than the ${LIMIT_USD:.2f} that were promised")

    def leave_nothing(self) -> int:
        """Destroys all, then looks whether something is left."""
        destroyed = self.gradmux(["destroy", "--name", self.name, "--delete-data", "--json"], self.folder)
        left = self.gradmux(["destroy", "--name", self.name, "--delete-data", "--dry-run", "--json"], self.folder)
        plan = json.loads(left.out) if left.code == 0 else {"steps": ["unknown"], "leaves": []}
        if destroyed.code == 0 and not plan["steps"] and not plan["leaves"]:
            self.say("aws-test: nothing is left")
            return 0
        self.say(f"aws-test: something is left: gradmux destroy --name {self.name} --delete-data")
        return 1

    def do(self, *arguments: str) -> str:
        """A command that must succeed. Raises Failed."""
        ran = self.gradmux(arguments, self.folder)
        self.done.append(arguments[0])
        if ran.code != 0:
            raise Failed(f"gradmux {' '.join(arguments)} ended with {ran.code}: {ran.out[-300:]}")
        return ran.out

    def ask(self, *arguments: str) -> dict[str, Any]:
        """The same, with what it says as JSON."""
        told: dict[str, Any] = json.loads(self.do(*arguments))
        return told


def real(arguments: Sequence[str], folder: Path) -> Ran:
    """The command, with its errors on our standard error."""
    command = [sys.executable, "-m", "gradmux", *arguments]
    ran = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    return Ran(ran.returncode, ran.stdout)


def main() -> int:
    """Asks, then tries."""
    name = f"gradmux-test-{secrets.token_hex(3)}"
    if input(QUESTION.format(name=name)).strip().lower() not in ("y", "yes"):
        print("aws-test: nothing was made")
        return 0
    with tempfile.TemporaryDirectory(prefix="gradmux-aws-test-") as folder:
        return Trial(real, Path(folder), name).run()


if __name__ == "__main__":
    sys.exit(main())
