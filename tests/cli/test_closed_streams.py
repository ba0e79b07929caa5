"""Commands whose standard streams are closed, or that have no home folder: they do their work, or say one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
name = "mini"
[cluster]
workers = 2
[scheme]
name = "uncoded"
[data]
train = "digits:train"
batch_size = 64
[training]
steps = 1
loss = "cross_entropy"
[[models]]
name = "a"
factory = "torch.nn:Linear"
args = { in_features = 64, out_features = 10 }
optimizer = { name = "SGD", lr = 0.1 }
"""
GRADMUX = f"{sys.executable} -m gradmux"


def run(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GRADMUX_HOME": str(folder / "home"), **variables}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_with_closed_streams_is_done(tmp_path: Path, closed: str) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    ran = run(f"{GRADMUX} submit job.toml {closed}", tmp_path)
    assert ran.returncode == 0, ran.stderr
    (listed,) = json.loads(run(f"{GRADMUX} list --json", tmp_path).stdout)["runs"]
    assert listed["state"] == "done"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_a_refusal_with_closed_streams_keeps_its_exit_code(tmp_path: Path, closed: str) -> None:
    ran = run(f"{GRADMUX} submit none.toml {closed}", tmp_path)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr


def test_a_home_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "file").write_text("")
    ran = run(f"{GRADMUX} submit job.toml", tmp_path, GRADMUX_HOME=str(tmp_path / "file" / "home"))
    assert ran.returncode == 2
    assert ran.stderr.count("gradmux:") == 1
    assert "no run can be kept" in ran.stderr
