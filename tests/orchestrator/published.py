"""Results of the SGC authors' own simulator (rule mu, wait for all) on delays that a formula gives: `published.json`.

    i = worker, r = round, both from 0; all integers, in milliseconds; k is in each case
    d = 800 + (7919 i + 104729 r + 31 i r + 271 k) mod 397
      + 2400  where (i i + 5 r + 3 i r + k) mod 19 = 0
      + 1300  where (3 i + 5 (r div 2) + k) mod 43 = 0
      + 25000 where (7 i + 11 r + k) mod 499 = 0

Every worker is invoked in every round that is played, idle ones too; delays do not depend on the load.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gradmux.orchestrator.policies import Limits, Mu
from gradmux.orchestrator.schemes.scheme import FloatArray

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("published.json").read_text())
AS_PUBLISHED = Limits(harvest_late=False, invoke_idle=True)
LETTERS = {"B": "burst", "W": "window", "lambda": "max_stragglers"}


def delays_s(case: dict[str, Any]) -> FloatArray:
    """(rounds, workers) seconds of one case."""
    k = case["k"]
    r, i = np.ogrid[: len(case["durations"]), : case["workers"]]
    d = 800 + (7919 * i + 104729 * r + 31 * i * r + 271 * k) % 397
    d = d + 2400 * ((i * i + 5 * r + 3 * i * r + k) % 19 == 0)
    d = d + 1300 * ((3 * i + 5 * (r // 2) + k) % 43 == 0)
    d = d + 25000 * ((7 * i + 11 * r + k) % 499 == 0)
    return d / 1000.0


def wait(case: dict[str, Any]) -> Mu:
    """The published rule."""
    return Mu(case["mu"], "all", "bursty")


def params(case: dict[str, Any]) -> dict[str, Any]:
    """As the schemes here name them; the published gc accepts at most s - 1 late workers."""
    given = case["params"]
    if case["scheme"] == "uncoded":
        return {}
    if case["scheme"] == "gc":
        return {"stragglers": given["s"] - 1, "code": "cyclic"}
    return {LETTERS[letter]: given[letter] for letter in LETTERS} | {"code": "cyclic"}
