"""The live comparison in virtual time: the very delays that the emulator injects, with loads and second attempts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.live_pipeline import InjectedDelays, columns, job, simulated
from gradmux.infra.local import DelayPlan
from gradmux.orchestrator.delays import DelayProfile

DELAYS_S = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 1.0, 1.0, 2.0], [1.0, 1.0, 6.0, 1.0]])


def test_an_uncoded_job_takes_the_slowest_of_its_columns_in_every_round(tmp_path: Path) -> None:
    """Workers 1 and 2 alone: 3 + 1 + 6 s at load 1/4, and 8 s more for each whole batch: 2 s more at load 1/2."""
    profile = DelayProfile(DELAYS_S, load=0.25, slope_s=8.0)
    prepared = job("own", {"name": "uncoded"}, [0], 2, 3, columns(profile, 1, 2), tmp_path)
    wall_s, billed_s = simulated(prepared)
    assert wall_s == pytest.approx(3 + 1 + 6 + 3 * 2)
    assert billed_s == pytest.approx(DELAYS_S[:, 1:3].sum() + 6 * 2)


def test_second_attempts_get_what_the_emulator_gives_them() -> None:
    plan = DelayPlan.of(DELAYS_S.tolist(), slope_s=8.0, base_load=0.25, time_scale=0.5, seed=7)
    table = InjectedDelays(plan, 4)
    for attempt in (1, 2, 3):
        assert table.delay_s(1, 0, attempt) == plan.delay_s(1, 0, attempt, 0.25)
    assert table.delay_s(1, 0, 1) == 2.5
