"""What the collector of cycles leaves alone while a run's workers are at work, and afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gradmux.orchestrator.fleets.warming import memory_settled


@pytest.fixture(autouse=True)
def _frozen_as_before() -> Iterator[None]:
    """As `tests/conftest.py` has it."""
    yield
    gc.freeze()


def test_what_it_has_frozen_is_let_go() -> None:
    gc.unfreeze()
    with memory_settled():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_what_the_program_had_frozen_stays_so() -> None:
    gc.freeze()
    with memory_settled():
        pass
    assert gc.get_freeze_count() > 0
