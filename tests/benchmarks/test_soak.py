"""The soak in little: one job under all faults at once, its orchestrator struck down until it is done all the same."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.soak import FAULTS, SCHEMES, Soak, describe


def test_a_job_under_all_faults_and_kills_ends_with_the_same_bytes(tmp_path: Path) -> None:
    soak = Soak(tmp_path, random.Random(1), workers=6, steps=60, blow_s=(0.3, 3.0))
    tally = soak.run(minutes=0.9, schemes=SCHEMES[:1])
    told = describe(tally, 1.0)
    assert tally.wrong == [], told
    assert (tally.lost, tally.twice) == (0, 0), told
    assert tally.gradients == tally.jobs * 2 * 60, told
    assert sum(tally.blows.values()) >= 1, told
    assert len(tally.faults) >= len(FAULTS.split(",")) // 2, told
