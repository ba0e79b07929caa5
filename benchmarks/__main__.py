"""Runs the short benchmarks one after the other, each in a process of its own: `make bench`, or `make bench ARGS=lazy`.

Names given as arguments choose among them. The long ones (soak, endurance, many_jobs) are run by their own names.
"""

from __future__ import annotations

import subprocess
import sys

SHORT = (
    "workers_ready",
    "dispatch",
    "replies",
    "combine",
    "cloud_aggregation",
    "loop_against_simulator",
    "scaling",
    "evaluator",
    "auto",
    "tuning_transfer",
    "schemes_on_profiles",
    "live_pipeline",
    "lazy",
    "stability",
    "profile_calibration",
)


def main(chosen: list[str]) -> int:
    """The number of benchmarks that missed their bound or failed."""
    unknown = [name for name in chosen if name not in SHORT]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(SHORT)}", file=sys.stderr)
        return 2
    failed = 0
    for name in chosen or SHORT:
        print(f"\n== {name}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
