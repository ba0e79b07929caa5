"""Long runs stay small: 5,000 rounds in virtual time with record and checkpoints on disk, and hundreds of calls."""

from __future__ import annotations

from pathlib import Path

from benchmarks.endurance import Gauge, emulated, virtual

ALLOWED_MB = 12.0
"""of growth; one kept vector of 8 KB a round would be 40"""


def test_five_thousand_rounds_hold_no_more_than_a_few_hundred_do(tmp_path: Path) -> None:
    gauge, record_bytes = virtual(tmp_path, 5000)
    assert len(gauge.resident_mb) >= 100
    assert gauge.growth_mb < ALLOWED_MB, gauge.describe()
    assert max(gauge.descriptors) - min(gauge.descriptors) <= 1, gauge.describe()
    assert len(set(gauge.threads)) == 1, gauge.describe()
    assert record_bytes < 2000 * 5000, "the record grows by what a round tells, not by what the run was"


def test_hundreds_of_real_calls_leave_no_descriptor_and_no_thread_behind(tmp_path: Path) -> None:
    gauge = emulated(tmp_path, 320)
    settled = len(gauge.descriptors) // 2
    assert max(gauge.descriptors) - min(gauge.descriptors[settled:]) <= 4, gauge.describe()
    assert max(gauge.threads) <= min(gauge.threads) + 6, gauge.describe()
    assert gauge.growth_mb < ALLOWED_MB, gauge.describe()


def test_what_grows_is_not_flat() -> None:
    """More memory at the end, or descriptors; not what comes and goes in between, nor what the first rounds need."""

    def gauge(mb: list[float], descriptors: list[int]) -> Gauge:
        return Gauge(1, resident_mb=mb, descriptors=descriptors)

    calm_mb, calm = [50.0] + [100.0] * 99, [3] + [30] * 99
    assert gauge(calm_mb, calm).flat
    assert gauge(calm_mb, [*calm[:50], 90, *calm[51:]]).flat
    assert not gauge(calm_mb, [30 + index // 20 for index in range(100)]).flat
    assert not gauge([100.0 + index / 10 for index in range(100)], calm).flat
