"""Sums that are an estimate of the batch's, made to count as the whole batch: what a mean over it divides by.

An estimate multiplies what it has by factors (ErasureHead's 1/(1-p), n/k) so that its *sum* is right on average. To
divide it by the count that was decoded with the same factors would cancel them: the count is the batch's own. Where all
rows count in the loss that is their number; where they do not (ignored targets, weights), the share that counts is
taken from the rows that were decoded. Loss and correct predictions stand over the same count.

By hand, 4 rows in 2 groups, only the first in, factor 6/5: sums 6/5 g_0 over 12/5 decoded rows; the step is
6/5 g_0 / 4. Source: Wang et al. 2019, ErasureHead. Knows neither torch nor schemes. Read next: `trainer.py`.
"""

from __future__ import annotations

from dataclasses import replace

from gradmux.lambda_worker.contract import SumIndex
from gradmux.orchestrator.training.gradients import CodedResult

ROUNDING = 1e-6
"""share by which the decoded rows of an exact decode may differ from the batch's"""


def of_batch(total: CodedResult, rows: int | None) -> CodedResult:
    """`total` as sums over a batch of so many rows; unchanged when it is (None: when that is not known)."""
    decoded = float(total.sums[SumIndex.SAMPLES])
    if rows is None or decoded <= 0 or abs(decoded - rows) <= ROUNDING * rows:
        return total
    sums = total.sums.copy()
    sums[SumIndex.SAMPLES] = rows
    sums[SumIndex.COUNT] *= rows / decoded
    sums[SumIndex.CORRECT] = min(sums[SumIndex.CORRECT], rows)
    return replace(total, sums=sums)
