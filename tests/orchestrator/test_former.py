"""Runs and plug-ins from before everything of ours lay in one package: migrated, or refused in one line."""

from __future__ import annotations

import base64
import importlib
import json
import sys
from pathlib import Path

import pytest
from torch import nn

from gradmux.orchestrator.backends import find_backend
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.former import present_name
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.runs.keep import keep_job, prepare_again
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.training.code import find_code, importing_from, ship_code

FORMER = "cli.demo.models:mlp"
"""as runs of the demo called it"""
TREE = {
    "cluster": {"workers": 2},
    "scheme": {"name": "uncoded"},
    "data": {"train": "digits:train", "batch_size": 16},
    "training": {"steps": 2},
    "models": [{"name": "m", "factory": FORMER, "args": {"hidden": 4}}],
}


@pytest.fixture(autouse=True)
def _away_from_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root of the project, where the former names lead to our folders, is not looked through."""
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry and Path(entry).resolve() != root])
    importlib.invalidate_caches()


def no_bucket(name: str) -> object:
    raise AssertionError(f"no bucket {name} is needed")


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    """The folder of a run that kept its function by the former name."""
    prepared = prepare_job(parse_job(TREE, "test"), Materials(), tmp_path, no_bucket)  # type: ignore[arg-type]
    paths = keep_job(prepared, tmp_path / "home", tmp_path)
    assert json.loads(paths.job.read_text())["models"][0]["factory"] == FORMER
    return keeping(paths, {"kind": "name", "code": FORMER})


def keeping(paths: RunPaths, code: dict[str, str]) -> RunPaths:
    file = paths.materials / "materials.json"
    fields = json.loads(file.read_text())
    file.write_text(json.dumps({**fields, "code": {"model m": code}}))
    return paths


def pickled(module: str, name: str) -> dict[str, str]:
    """A function by reference, as a pickle of a run holds it."""
    return {"kind": "pickle", "code": base64.b64encode(f"c{module}\n{name}\n.".encode()).decode()}


def test_names_of_a_former_run_are_found(run: RunPaths) -> None:
    (plan,) = prepare_again(run).models
    assert isinstance(find_code(plan.factory, "factory")(hidden=4), nn.Sequential)


def test_pickles_of_a_former_run_are_read(run: RunPaths) -> None:
    (plan,) = prepare_again(keeping(run, pickled("cli.demo.models", "mlp"))).models
    assert callable(plan.factory)
    assert plan.factory.__module__.startswith("gradmux.")


@pytest.mark.parametrize("module", ["orchestrator.gone", "lambda_worker.gone.further"])
def test_a_pickle_that_names_what_is_gone_is_refused_in_one_line(run: RunPaths, module: str) -> None:
    with pytest.raises(
        ConfigError, match=r"No module named .*; what gradmux called .* in version 0\.1\.0 is"
    ) as refused:
        prepare_again(keeping(run, pickled(module, "mlp")))
    assert str(refused.value).endswith("; submit the job again")
    assert "\n" not in str(refused.value)


def test_a_worker_gets_the_present_name() -> None:
    shipped = ship_code(FORMER, "factory")
    assert isinstance(shipped, str)
    assert shipped.startswith("gradmux.")


def test_the_user_s_own_module_of_such_a_name_stays_theirs(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "gm_nets.py").write_text("def make():\n    return 7\n")
    with importing_from(tmp_path):
        assert present_name("infra.gm_nets") == "infra.gm_nets"
        assert find_code("infra.gm_nets:make", "factory")() == 7
    for name in ("infra.gm_nets", "infra"):
        sys.modules.pop(name, None)


def test_what_is_nowhere_keeps_its_name() -> None:
    assert present_name("orchestrator.gone") == "orchestrator.gone"
    assert present_name("numpy.gone") == "numpy.gone"
    with pytest.raises(ConfigError, match="there is no module 'orchestrator"):
        find_code("orchestrator.gone:mlp", "factory")


def test_a_backend_written_for_the_former_names_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gm_backend.py").write_text("from infra.local import Emulator\n")
    info = tmp_path / "gm_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gm-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gradmux.backends]\ngm-backend = gm_backend:BACKEND\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"gradmux called infra in version 0\.1\.0 is gradmux\.infra now"):
        find_backend("gm-backend")
