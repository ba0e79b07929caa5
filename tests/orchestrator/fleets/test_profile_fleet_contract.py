"""The fleet in virtual time under the same suite as the real ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from tests.orchestrator.fleet_contract import FleetContract


@dataclass
class VirtualHarness:
    unit_s: float = 1.0
    has_results: bool = False

    def open(self, delays: Sequence[Sequence[float]], failing: Collection[tuple[int, int]] = ()) -> ProfileFleet:
        table = np.array(delays, dtype=float)
        for place in failing:
            table[place] = np.inf
        return ProfileFleet(DelayTable(table, table.shape[1]), LoadModel())


class TestProfileFleet(FleetContract):
    @pytest.fixture
    def harness(self) -> VirtualHarness:
        return VirtualHarness()
