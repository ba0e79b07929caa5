"""Other systems beside ours: tasks that do nothing on Lithops and Ray, and whatever else runs in their environment.

They live in a virtual environment of their own, outside this project, since they ask for other versions of what we use:

    python -m benchmarks.peers      sets it up (or renews it); `dispatch` and `store` find it by themselves

Each is installed by itself: one that has no wheel for this Python leaves the other one alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from platformdirs import user_cache_path

PACKAGES = ("lithops>=3.6,<4", "ray>=2.40,<3", "aiobotocore>=2.20,<4")
PATIENCE_S = 90.0
PEERS = {
    "Lithops, localhost version 1": """
import lithops, time
executor = lithops.FunctionExecutor(config={"lithops": {"backend": "localhost", "storage": "localhost",
    "monitoring_interval": 0.05}, "localhost": {"version": 1}}, log_level="ERROR")
def nothing(index):
    return index
def play():
    executor.map(nothing, range(TASKS)); assert executor.get_result() == list(range(TASKS))
""",
    "Ray": """
import ray, time
ray.init(logging_level="ERROR", log_to_driver=False, include_dashboard=False)
nothing = ray.remote(lambda index: index)
def play():
    assert ray.get([nothing.remote(index) for index in range(TASKS)]) == list(range(TASKS))
""",
}
TIMED = """
TASKS = {tasks}
{setting}
play()
times = []
for _ in range(3):
    start = time.perf_counter(); play(); times.append(time.perf_counter() - start)
print("seconds", min(times))
"""


def peers_python() -> Path:
    """Their interpreter, whether it is there or not."""
    return user_cache_path("gradmux") / "benchmark-peers" / "bin" / "python"


def time_of(name: str, tasks: int, python: Path) -> float | str:
    """Seconds of the best of three rounds, or one line that says why there is no figure."""
    said, trouble = run_program(TIMED.format(tasks=tasks, setting=PEERS[name]), "seconds", python)
    return trouble if said is None else float(said)


def run_program(program: str, word: str, python: Path) -> tuple[str | None, str]:
    """(what it printed after `word` at the beginning of a line, one line that says why it did not)."""
    if not python.exists():
        return None, "not measured: `python -m benchmarks.peers` installs it"
    try:
        ended = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            env=with_first(python),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"took longer than {PATIENCE_S:g} s"
    said = [line.removeprefix(f"{word} ") for line in ended.stdout.splitlines() if line.startswith(f"{word} ")]
    if said:
        return said[0], ""
    return None, f"not measured: {(ended.stderr.strip().splitlines() or ['no answer'])[-1]}"


def with_first(python: Path) -> dict[str, str]:
    """The environment in which `python` is that one: Lithops starts its workers so."""
    return {**os.environ, "PATH": f"{python.absolute().parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def main() -> int:
    """Sets the environment up."""
    python = peers_python()
    if not python.exists():
        venv.create(python.parents[1], with_pip=True)
    failed = 0
    for package in PACKAGES:
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
        bad = subprocess.run(install, check=False).returncode != 0
        failed += bad
        print(f"{package}: {'could not be installed' if bad else 'installed'} ({python.parents[1]})")
    return failed


if __name__ == "__main__":
    sys.exit(main())
