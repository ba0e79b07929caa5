"""Conformance mode: a handler under AWS's own `python -m awslambdaric`, a process and a Runtime API for each worker.

Slow to start and one call at a time: not for jobs, but to hold the emulator's forked workers to what AWS's runtime does
with the same handler. Read next: `runtime_api.py`, `worker.py`.
"""

from gradmux.infra.local.conformance.worker import ConformanceWorker

__all__ = ["ConformanceWorker"]
