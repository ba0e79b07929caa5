"""Threads follow from memory, and kernels are pinned before torch's first operation, in a real worker process too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gradmux import Job, Model, train
from gradmux.lambda_worker.processor import KERNELS, pinned_kernels, thread_count

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("memory", "threads"), [("128", 1), ("1769", 1), ("3537", 1), ("3538", 2), ("10240", 5), ("", 1)]
)
def test_a_thread_for_each_processor_that_the_memory_pays_for(memory: str, threads: int) -> None:
    assert thread_count({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": memory}) == threads
    assert thread_count({}) == 1


def test_a_processor_without_avx2_is_left_alone(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("processor\t: 0\nflags\t\t: fpu sse2 avx\n")
    new.write_text("processor\t: 0\nflags\t\t: fpu sse2 avx avx2 avx512f\n")
    assert (pinned_kernels(old), pinned_kernels(new), pinned_kernels(tmp_path / "none")) == ({}, KERNELS, {})


@pytest.mark.parametrize("memory", ["1769", "7076"])
def test_the_handler_sets_both_whatever_the_machine_has(memory: str) -> None:
    code = (
        "import json, os, gradmux.lambda_worker.handler as handler, torch\n"
        "torch.ones(3) + 1\n"
        "told = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()\n"
        "print(json.dumps(told))\n"
    )
    environment = {**os.environ, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": memory, "OMP_NUM_THREADS": "1"}
    for name in KERNELS:
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    threads, capability = json.loads(done.stdout)
    assert threads == int(memory) // 1769
    if pinned_kernels():
        assert capability == "AVX2"


class CountsThreads(nn.Linear):
    """Trains in a worker of two threads alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        threads = torch.get_num_threads()
        if "AWS_LAMBDA_FUNCTION_NAME" in os.environ and threads != 2:
            raise RuntimeError(f"{threads} threads")
        return super().forward(x)


def test_a_worker_of_the_emulator_has_the_threads_of_its_memory(tmp_path: Path) -> None:
    """It is forked from a process that computed before, with one."""
    x = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32)
    job = Job(
        models=[Model("m", CountsThreads, args={"in_features": 256, "out_features": 256})],
        data=(x, x),
        loss="mse_loss",
        batch_size=64,
        steps=2,
        workers=2,
        cluster={"memory_mb": 3600},
    )
    assert train(job, home=tmp_path).run.state == "done"
