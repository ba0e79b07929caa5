"""How true the Lambda-like presets are: every measured trace's figures beside those of its generated counterpart.

    python -m benchmarks.profile_calibration [FOLDER OF TRACES] [--seeds 40] [--json]

A counterpart has the trace's rounds, workers and load. Its figures are given as the median and the 5 % to 95 % range
over seeds; a measured figure outside that range, and further than 10 % from the median, is marked. Traces are 10 to 30
rounds long, so their rare events vary much.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gradmux.orchestrator.delays import PRESETS, DelayProfile, generate, load_profile
from gradmux.orchestrator.delays.statistics import ProfileSummary, summarise

TRACES = Path(__file__).resolve().parents[2] / "shared" / "profiles"
COUNTERPARTS = {
    "cnn-london-b256-load0.000": "steady",
    "cnn-london-b256-load": "scattered",
    "cnn-sydney-b256-load0.000": None,
    "cnn-sydney-b256-load": "outliers",
    "cnn-canada-b2048-load": "persistent",
    "resnet18-canada-b256-load": "bimodal",
}
"""Start of a trace's name -> the preset fitted on it, first match; None: no preset claims to be like it."""
WARM_UP_ROUNDS = {"bimodal": 2}
"""Rounds at the start of a trace that its preset does not describe."""
CLOSE = 0.1
"""relative difference that is not marked"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of a trace, measured and generated."""

    trace: str
    preset: str
    figure: str
    measured: float
    generated: float
    """median over the seeds"""
    low: float
    """5 % quantile over the seeds"""
    high: float
    """95 % quantile"""

    @property
    def inside(self) -> bool:
        """Whether the measured figure is one that the generator gives."""
        return self.low <= self.measured <= self.high

    @property
    def agrees(self) -> bool:
        """Whether it is such a figure or within CLOSE of the median."""
        return self.inside or abs(self.measured - self.generated) <= CLOSE * abs(self.generated)


def measured_traces(folder: Path) -> Iterator[tuple[DelayProfile, str]]:
    """Every trace that has a counterpart, cut to the rounds that it describes, with the preset's name."""
    for path in sorted(folder.glob("*.npz")):
        preset = next((kind for start, kind in COUNTERPARTS.items() if path.name.startswith(start)), None)
        if preset is not None:
            trace = load_profile(path)
            yield trace.take(np.arange(WARM_UP_ROUNDS.get(preset, 0), trace.rounds)), preset


def compare(trace: DelayProfile, preset: str, seeds: int) -> list[Comparison]:
    """The figures of a trace and of `seeds` generated profiles of its shape and load."""
    parameters = replace(PRESETS[preset], load=trace.load)
    made = [
        figures(summarise(generate(preset, trace.rounds, trace.workers, seed, parameters))) for seed in range(seeds)
    ]
    compared = []
    for name, measured in figures(summarise(trace)).items():
        low, middle, high = np.quantile([figure[name] for figure in made], (0.05, 0.5, 0.95)).tolist()
        compared.append(Comparison(trace.name, preset, name, measured, middle, low, high))
    return compared


def figures(summary: ProfileSummary) -> dict[str, float]:
    """The figures that are compared, by name. Persistence figures are 0 where there is nothing to measure."""
    tail = zip(("50 %", "90 %", "99 %", "99.9 %"), summary.tail_relative, strict=True)
    result = {
        "median, s": summary.median_s,
        "fastest of a round, s": summary.fastest_s,
        "slowest of a round, s": summary.slowest_s,
        "slowest of a round, mean, s": summary.slowest_mean_s,
        "outliers, share": summary.outlier_share,
        **{f"over fastest, {quantile}": value for quantile, value in tail},
    }
    for at in summary.straggling:
        result[f"stragglers at {at.mu:g}"] = at.share
        result[f"  from round to round at {at.mu:g}, sd"] = at.share_sd
    half = next(at for at in summary.straggling if at.mu == 0.5)
    result |= {
        "burst length at 0.5, rounds": half.burst_mean,
        "persistence at 0.5": half.persistence or 0.0,
        "repeat ratio at 0.5": half.repeat_ratio or 0.0,
        "correlation at 0.5": half.correlation or 0.0,
        "lag-1 correlation at 0.5": half.lag1_correlation or 0.0,
        "neighbour correlation at 0.5": half.neighbour_correlation or 0.0,
    }
    return result


def main() -> int:
    """Prints the comparison; 1 when there are no traces."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=TRACES, help="measured traces (.npz)")
    parser.add_argument("--seeds", type=int, default=40, help="generated profiles per trace")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [row for trace, preset in measured_traces(options.folder) for row in compare(trace, preset, options.seeds)]
    if not rows:
        print(f"no measured traces in {options.folder}", file=sys.stderr)
        return 1
    print(json.dumps([asdict(row) for row in rows], indent=1) if options.json else _text(rows))
    return 0


def _text(rows: list[Comparison]) -> str:
    lines = []
    for index, row in enumerate(rows):
        if index == 0 or row.trace != rows[index - 1].trace:
            lines += [
                "",
                f"{row.trace} beside {row.preset}",
                f"  {'':38}{'measured':>10}{'generated':>10}   5 % .. 95 %",
            ]
        mark = " " if row.agrees else "*"
        spread = f"{row.low:.3f} .. {row.high:.3f}"
        lines.append(f"{mark} {row.figure:38}{row.measured:10.3f}{row.generated:10.3f}   {spread}")
    inside, agree = sum(row.inside for row in rows), sum(row.agrees for row in rows)
    lines += [
        "",
        f"{inside} of {len(rows)} measured figures lie within the generator's 5 % .. 95 % range, "
        f"{agree} within it or within {CLOSE:.0%} of its median (* the others)",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
