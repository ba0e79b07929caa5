"""One emulator for a module of tests, with a stage on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local import Emulator, EmulatorConfig
from tests.end_to_end.stage import Stage

CONCURRENCY = 24
"""Of the emulator: more invocations in flight are refused with 429."""


@pytest.fixture(scope="module")
def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Emulator(EmulatorConfig(concurrency=CONCURRENCY, warm=12, timeout_s=60.0)) as emulator:
        stage = Stage(emulator, tmp_path_factory.mktemp("records"))
        yield stage
        stage.store.close()


@pytest.fixture
def stage(shared_stage: Stage) -> Iterator[Stage]:
    """Delays and faults that a test sets end with it."""
    yield shared_stage
    shared_stage.calm()
