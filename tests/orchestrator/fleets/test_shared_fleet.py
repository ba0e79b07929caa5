"""A fleet that shares its slots under the same suite as the others, with slots for everything."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pytest

from gradmux.orchestrator.fleets.between import SharedFleet
from tests.orchestrator.fleet_contract import FleetContract
from tests.orchestrator.fleets.test_profile_fleet_contract import VirtualHarness


class Enough:
    """Slots without end."""

    def take(self, wanted: int) -> int:
        return wanted

    def give_back(self, count: int) -> None:
        """There are others."""


@dataclass
class SharedHarness:
    unit_s: float = 1.0
    has_results: bool = False

    def open(self, delays: Sequence[Sequence[float]], failing: Collection[tuple[int, int]] = ()) -> SharedFleet:
        return SharedFleet(VirtualHarness().open(delays, failing), Enough())


class TestSharedFleet(FleetContract):
    @pytest.fixture
    def harness(self) -> SharedHarness:
        return SharedHarness()
