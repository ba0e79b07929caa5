"""What every test shares: no way to a real cloud account, repeatable examples, the material beside the project.

Generated examples are the same in every run; `EXPLORE=1 make test ARGS="-k ..."` draws new ones.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.commands.warm_emulator import warm_emulators

PROJECT = Path(__file__).resolve().parent.parent
REAL_EMULATORS = PROJECT / "tests" / "infra" / "local"
OURS = "gradmux"
"""the logger that commands set up"""

settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("repeatable", parent=settings.get_profile("explore"), derandomize=True)
settings.load_profile("explore" if os.environ.get("EXPLORE") else "repeatable")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a shell starts what runs in the background, and so we would
    signal.signal(signal.SIGINT, signal.default_int_handler)  # start all processes: none would heed Ctrl-C


def pytest_collection_finish() -> None:
    """What is there before the first test is not looked through for garbage again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Emulators begin as forks of a warm process, but where they themselves are what is tested."""
    warm_emulators(not item.path.is_relative_to(REAL_EMULATORS))


@pytest.fixture(autouse=True)
def _no_cloud_account(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever a developer's shell holds, no test sees credentials, profiles or endpoints of a real account."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GRADMUX_"))]:
        monkeypatch.delenv(name)
    nowhere = tmp_path_factory.getbasetemp() / "no-aws-files"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(nowhere / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("GRADMUX_CODE", str(PROJECT))  # in this process, the tests' models are shipped code


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    """A command that was called with -q in this process does not silence the warnings of the next test."""
    logger = logging.getLogger(OURS)
    level, handlers = logger.level, logger.handlers[:]
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of measured profiles and oracle cases that may lie beside the project, else a skip."""
    folder = PROJECT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no folder `shared` with measured profiles beside the project")
    return folder
