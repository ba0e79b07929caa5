"""The benchmark of large sets in small: packed from .npy, read by ranges, one epoch on workers of 512 MB."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.large_set import MB, job, measured


def test_an_epoch_by_ranges_on_small_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMUX_CACHE_BYTES", "0")  # nothing is kept, so that rows are read as those of a large set are
    found = measured(tmp_path / "all", 64, workers=2, memory_mb=512)
    assert found.rows == 64
    assert 0 < found.worker_bytes < 512 * MB
    assert (tmp_path / "all" / "set" / "index.json").exists()


def test_every_row_is_read_once(tmp_path: Path) -> None:
    config = job(tmp_path, 28_532, workers=4, memory_mb=512)
    assert config.training.steps == 28_532 // config.data.batch_size
