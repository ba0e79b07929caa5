"""What a run costs in dollars, from what the evaluator says of it.

Late and redundant work is billed like all other. Every job's weights are put into S3 once and read by each invocation
for each job that it works on; results are taken to fit into the reply. Knows no profile. Read next: `search.py`.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.evaluate import Batch, Played
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.prices import OBJECTS, REQUESTS
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.tune.options import TuneOptions


def cost_usd(batch: Batch, played: Played, options: TuneOptions) -> FloatArray:
    """(columns,) dollars for all jobs."""
    reads = played.invocations * _jobs_per_invocation(batch)
    puts = played.invocations.astype(np.float64) if batch.scheme == "stretch" else None  # each copy puts its state
    return np.asarray(usd(played.billed_s, played.invocations, reads, options, puts), dtype=np.float64)


def usd(
    billed_s: FloatArray | float,
    invocations: IntArray | int,
    reads: FloatArray | float,
    options: TuneOptions,
    puts: FloatArray | None = None,
) -> FloatArray | float:
    """Dollars for all jobs; `reads`: snapshots that invocations read from S3; `puts`: of them, None: one a job."""
    prices = options.prices
    gb_s = billed_s * (options.memory_mb / 1024)
    return (
        gb_s * prices.gb_s
        + invocations / REQUESTS * prices.million_requests
        + (options.jobs if puts is None else puts) / OBJECTS * prices.thousand_puts
        + reads / OBJECTS * prices.thousand_gets
    )


def _jobs_per_invocation(batch: Batch) -> FloatArray:
    """(columns,) snapshots that one invocation reads: m-sgc's serve W - 1 + B jobs, all others one."""
    if batch.scheme != "m-sgc":
        return np.ones(batch.size)
    return (batch.ints("window") - 1 + batch.ints("burst")).astype(np.float64)
