"""The soak in little: one job under all faults at once, its orchestrator struck down twice on the way."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak import FAULTS, SCHEMES, Soak, describe
from tests.commands.command_line import submit

BLOWS, STEPS = 2, 40


@pytest.mark.timeout(900)  # on a busy machine a Python process alone takes half a minute to start
def test_a_job_under_all_faults_and_kills_ends_with_the_same_bytes(tmp_path: Path) -> None:
    def gradmux(*words: str) -> dict[str, Any] | None:
        submitted = submit(tmp_path, [*words, "--json"], os.environ)
        out, _ = submitted.communicate()
        return json.loads(out) if submitted.process.returncode == 0 else None

    soak = Soak(tmp_path, random.Random(1), gradmux, workers=4, steps=STEPS, blow_s=(0.2, 0.8))
    soak.pair(SCHEMES[0], peace=lambda: sum(soak.tally.blows.values()) >= BLOWS)
    tally, told = soak.tally, describe(soak.tally, 1.0)
    assert tally.wrong == [], told
    assert (tally.lost, tally.twice) == (0, 0), told
    assert tally.gradients == 2 * STEPS, told
    assert sum(tally.blows.values()) == BLOWS, told
    assert len(tally.faults) >= len(FAULTS.split(",")) // 2, told
