"""One emulator for all of these tests, with a stage on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gradmux.infra.local import Emulator, EmulatorConfig
from tests.end_to_end.stage import Stage

CONCURRENCY = 24
"""Of the emulator: more invocations in flight are refused with 429."""


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="module")
def big_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """For 64 workers and their late answers."""
    with Emulator(EmulatorConfig(concurrency=256, warm=64, timeout_s=60.0)) as emulator:
        stage = Stage(emulator, tmp_path_factory.mktemp("records"))
        yield stage
        stage.store.close()
