"""Fixtures of the worker's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lambda_worker.workbench import Workbench


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)
