"""Where things lie under the home folder: one folder a run, and the state of the long-lived emulator.

Makes names and nothing else. Read next: `wiring.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The folder of one run."""

    folder: Path

    @property
    def run(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def record(self) -> Path:
        """One JSON line per round."""
        return self.folder / "record.jsonl"

    @property
    def job(self) -> Path:
        """The job as it was run, all defaults filled in."""
        return self.folder / "job.json"

    @property
    def result(self) -> Path:
        """What `submit --json` printed."""
        return self.folder / "result.json"

    def weights(self, model: str) -> Path:
        """The trained weights of one model."""
        return self.folder / "weights" / f"{model}.safetensors"


def new_run(home: Path, name: str) -> RunPaths:
    """A fresh folder `home/runs/NAME-1`, `-2`, ...: the first that nobody has, made at once: two never share one."""
    runs = home / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = runs / f"{name}-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return RunPaths(folder)


def emulator_state(home: Path) -> Path:
    """Endpoints and process of the emulator that `local up` started."""
    return home / "local.json"


def emulator_log(home: Path) -> Path:
    """What that emulator prints."""
    return home / "local.log"
