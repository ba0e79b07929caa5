"""What a run costs in dollars, from what the evaluator says of it.

Late and redundant work is billed like all other. Every job's weights are put into S3 once and read by each invocation
for each job that it works on; results are taken to fit into the reply, and to leave AWS with it, once for each job that
the invocation works on. Knows no profile. Read next: `search.py`.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.evaluate import Batch, Played
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.prices import GB, OBJECTS, REQUESTS, Usage, worth_of
from gradmux.orchestrator.schemes.registry import get
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.schemes.worth import Worth
from gradmux.orchestrator.tune.options import TuneOptions

FLOAT_BYTES = 4
STATE_FLOATS = 3
"""of each parameter in the state that a stretch sends: the weight, and two moments of Adam"""


def cost_usd(batch: Batch, played: Played, options: TuneOptions) -> FloatArray:
    """(columns,) dollars for all jobs."""
    results = batch.slots().astype(np.float64)  # snapshots that an invocation reads, one for each job that it serves
    results *= played.invocations
    if get(batch.scheme).stretches:  # each copy reads and answers with a whole state
        return np.asarray(usd(played.billed_s, played.invocations, results, results, options, STATE_FLOATS))
    return np.asarray(usd(played.billed_s, played.invocations, results, options.jobs, options))


def usd(
    billed_s: FloatArray | float,
    invocations: IntArray | int,
    results: FloatArray | float,
    puts: FloatArray | float,
    options: TuneOptions,
    floats: int = 1,
) -> FloatArray | float:
    """Dollars for all jobs; `results`: of invocations, each with its own read from S3; `floats`: of a parameter."""
    prices = options.prices
    gb_s = billed_s * (options.memory_mb / 1024)
    return (
        gb_s * prices.gb_s
        + invocations / REQUESTS * prices.million_requests
        + puts / OBJECTS * prices.thousand_puts
        + results / OBJECTS * prices.thousand_gets
        + results * (floats * FLOAT_BYTES * options.parameters) / GB * prices.out_gb
    )


def worth(options: TuneOptions) -> Worth:
    """The same for a scheme that sizes its jobs itself."""
    call, size = Usage(invocations=1, gets=1), FLOAT_BYTES * options.parameters
    return worth_of(
        options.prices,
        options.memory_mb,
        options.hour_usd,
        call + Usage(out_bytes=size),
        call + Usage(puts=1, out_bytes=STATE_FLOATS * size),
    )
