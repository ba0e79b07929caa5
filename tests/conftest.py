"""What every test shares: no way to a real cloud account, repeatable examples, the material beside the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

PROJECT = Path(__file__).resolve().parent.parent

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(autouse=True)
def _no_cloud_account(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever a developer's shell holds, no test sees credentials, profiles or endpoints of a real account."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GRADMUX_"))]:
        monkeypatch.delenv(name)
    nowhere = tmp_path_factory.getbasetemp() / "no-aws-files"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(nowhere / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of measured profiles and oracle cases that may lie beside the project, else a skip."""
    folder = PROJECT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no folder `shared` with measured profiles beside the project")
    return folder
