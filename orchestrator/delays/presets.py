"""Kinds of behaviour of AWS Lambda: the Lambda-like model's numbers, fitted on measured traces.

The traces are those that the authors of Sequential Gradient Coding published: seconds from invoke to answer of 256
workers in three regions, 10 to 30 rounds for each of several loads. A preset was fitted by matching, on the loads of
one region together, the quantiles of the delay over the round's fastest, the straggler shares at mu = 1, 0.5 and 0.2,
their spread from round to round and their correlation between rounds, the slowest answer, the fastest and the median.
Outliers and slow rounds were counted. `benchmarks/profile_calibration.py` prints measured beside generated.

The additive slope holds from load 0.25 to 1. Load 0 is a case of its own in two regions (no computation at all).
Read next: `lambda_like.py` (what each number means).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gradmux.orchestrator.delays.lambda_like import LambdaLike

STEADY = LambdaLike(
    floor_s=0.924,
    gap_s=0.285,
    spread_s=0.313,
    spread_sigma=0.39,
    round_sigma=0.2,
    early_share=0.144,
    early_sigma=0.31,
    early_low=0.055,
    early_high=0.68,
)
"""No long tail, no persistence: the slowest of 256 takes 1.5 times the median. London, no computation, 10 rounds."""

SCATTERED = LambdaLike(
    floor_s=1.098,
    slope_s=0.132,
    load=0.5,
    base_load=0.5,
    gap_s=0.297,
    spread_s=0.256,
    spread_sigma=0.41,
    round_sigma=0.2,
    early_share=0.079,
    early_sigma=0.35,
    early_low=0.064,
    early_high=0.72,
    other_rate=0.027,
    slow_s=0.254,
    slow_sd_s=0.142,
    outlier_rate=0.2,
    outlier_workers=3.75,
    outlier_s=25.5,
    outlier_long_s=37.5,
    outlier_long_share=0.17,
)
"""Wide spread, independent from round to round, timeouts in every fifth round. London, 40 rounds, 30 outliers."""

OUTLIERS = LambdaLike(
    floor_s=1.498,
    slope_s=0.157,
    load=0.5,
    base_load=0.5,
    gap_s=0.5425,
    spread_s=0.121,
    spread_sigma=0.646,
    round_sigma=0.28,
    early_share=0.134,
    early_sigma=0.27,
    early_low=0.019,
    early_high=0.14,
    outlier_rate=0.21,
    outlier_workers=4.5,
    outlier_s=25.9,
    outlier_long_s=36.9,
    outlier_long_share=0.09,
)
"""Two modes 0.6 s apart, independent from round to round; timeouts of 26 or 37 s in every fifth round, 4.5 workers at
once. Sydney, 80 rounds, 77 outliers."""

PERSISTENT = LambdaLike(
    floor_s=1.062,
    slope_s=1.04,
    load=0.5,
    base_load=0.5,
    gap_s=0.048,
    spread_s=0.069,
    spread_sigma=0.56,
    round_sigma=0.08,
    early_share=0.035,
    early_sigma=0.31,
    early_low=0.0,
    early_high=0.6,
    prone_share=0.25,
    prone_run=8,
    prone_rate=0.35,
    other_rate=0.02,
    slow_s=0.51,
    slow_sd_s=0.2,
    stretch_rate=0.04,
    stretch_s=0.39,
    outlier_rate=0.04,
    outlier_workers=4.2,
    outlier_s=25.3,
    outlier_long_s=36.8,
    outlier_long_share=0.33,
)
"""A quarter of the indices, 8 of every 32, gives most of the stragglers: they repeat 2 to 3 times as often as chance.
One round in 25 is slow for all workers, one in 25 has timeouts. Canada, large batch, 150 rounds, 25 outliers."""

BIMODAL = LambdaLike(
    floor_s=1.33,
    load=0.02,
    base_load=0.02,
    gap_s=0.3385,
    spread_s=0.518,
    spread_sigma=0.35,
    round_sigma=0.7,
    early_share=0.36,
    early_sigma=0.33,
    early_low=0.24,
    early_high=1.0,
    early_prone=0.1,
    prone_share=0.78,
    prone_run=25,
    prone_rate=0.995,
    other_rate=0.72,
    slow_s=14.7,
    slow_sd_s=0.35,
)
"""A few answers after 2 s, nearly all after 17 s; the fast ones come mostly from the same indices. A ResNet-18 in
Canada, its rounds 2 to 24: the first two, still warming up, behave otherwise."""

PRESETS: Mapping[str, LambdaLike] = MappingProxyType(
    {
        "steady": STEADY,
        "scattered": SCATTERED,
        "outliers": OUTLIERS,
        "persistent": PERSISTENT,
        "bimodal": BIMODAL,
    }
)
"""By name."""
