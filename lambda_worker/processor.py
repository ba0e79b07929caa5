"""How a worker uses its processor: as many threads as its memory pays for, and kernels that other processors have too.

Copies of a task must agree to the last bit. A sum depends on how many threads share it, so their number follows from
the function's memory, as the processor time does that Lambda gives, and never from the machine. torch, oneDNN and MKL
choose their kernels by what the processor can do, so all are held to AVX2, which every x86 processor of Lambda has.
Imports no torch: the variables count until its first operation. Read `handler.py` next.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["KERNELS", "MB_PER_THREAD", "pinned_kernels", "thread_count"]

MEMORY = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"
"""variable: MB that the function has, set by Lambda and by the emulator"""
MB_PER_THREAD = 1769
"""Lambda gives one processor's time for so much memory."""
KERNELS = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
FLAG = "avx2"


def thread_count(environment: Mapping[str, str] = os.environ) -> int:
    """Threads of a worker with this much memory: one for each whole processor, at least 1; outside of workers 1."""
    memory = environment.get(MEMORY, "")
    return max(1, int(memory) // MB_PER_THREAD) if memory.isdecimal() else 1


def pinned_kernels(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The variables that hold kernels to AVX2; none on a processor without it, where that would end the process."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return dict(KERNELS) if FLAG in flags else {}
