"""Code of the user's in a process that has nothing but what is shipped: sent along, or named in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from gradmux.lambda_worker.carried import Source, bundle, unpacked
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.store import MemoryStore

HEAD = "from torch import nn\n\n\n"


@pytest.fixture
def _modules_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test imports from its own folder is forgotten after it."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("beside", "mymodels", "mypackage", "mypackage.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def prepared(folder: Path, source: str, **files: str) -> Prepared:
    (folder / "mymodels.py").write_text(HEAD + dedent(source))
    for name, text in files.items():
        file = folder / name.replace("__", "/")
        file = file.with_suffix(".py") if file.suffix == "" else file
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    tree = {
        "name": "clean",
        "scheme": {"name": "uncoded"},
        "cluster": {"workers": 2, "backend": "local"},
        "data": {"train": "digits:train", "batch_size": 64},
        "training": {"steps": 1},
        "models": [{"name": "net", "factory": "mymodels:net"}],
    }
    try:
        return prepare_job(parse_job(tree, source="job"), Materials(), folder, lambda _: MemoryStore())
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("beside", "mymodels", "mypackage")]:
            del sys.modules[name]


@pytest.mark.usefixtures("_modules_as_before")
def test_modules_that_are_imported_late_travel_beside_the_factory(tmp_path: Path) -> None:
    source = """
        def net():
            from beside import block
            return nn.Sequential(block(64), nn.ReLU(), nn.Linear(8, 10))
    """
    found = prepared(
        tmp_path,
        source,
        beside="from torch import nn\nfrom mypackage.inner import W\n\n\ndef block(h):\n    return nn.Linear(h, W)\n",
        mypackage____init__="",
        mypackage__inner="W = 8\n",
    )
    assert set(found.models[0].carries) == {"beside", "mypackage", "mypackage.inner"}


@pytest.mark.usefixtures("_modules_as_before")
def test_an_import_inside_a_forward_travels_too(tmp_path: Path) -> None:
    source = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(64, 10)

            def forward(self, x):
                from beside import act
                return act(self.layer(x))


        def net():
            return Net()
    """
    found = prepared(tmp_path, source, beside="from torch import tanh as act\n")
    assert set(found.models[0].carries) == {"beside"}


@pytest.mark.usefixtures("_modules_as_before")
def test_a_function_in_an_lru_cache_travels_by_value(tmp_path: Path) -> None:
    source = """
        import functools


        @functools.lru_cache
        def width(k):
            return 8 * k


        def net():
            return nn.Sequential(nn.Linear(64, width(1)), nn.ReLU(), nn.Linear(8, 10))
    """
    assert not prepared(tmp_path, source).models[0].carries


@pytest.mark.usefixtures("_modules_as_before")
def test_a_file_that_workers_do_not_have_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "width.txt").write_text("8")
    monkeypatch.chdir(tmp_path)
    source = """
        def net():
            return nn.Sequential(nn.Linear(64, int(open("width.txt").read())), nn.Linear(8, 10))
    """
    with pytest.raises(ConfigError, match=r"reads 'width\.txt', which workers do not have"):
        prepared(tmp_path, source)


@pytest.mark.usefixtures("_modules_as_before")
def test_a_file_that_only_this_machine_has_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "width.txt").write_text("8")
    source = f"""
        def net():
            return nn.Sequential(nn.Linear(64, int(open({str(tmp_path / "width.txt")!r}).read())), nn.Linear(8, 10))
    """
    prepared(tmp_path, source)
    assert f"its code reads {tmp_path / 'width.txt'}, which this machine has" in caplog.text


@pytest.mark.usefixtures("_modules_as_before")
def test_modules_of_ones_own_are_no_files_to_be_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prepared(tmp_path, "def net():\n    return nn.Linear(64, 10)\n")
    assert "which this machine has" not in caplog.text


@pytest.mark.usefixtures("_modules_as_before")
def test_what_depends_on_the_process_is_refused(tmp_path: Path) -> None:
    source = """
        import os


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.scale = nn.Linear(64, 10), int.from_bytes(os.urandom(2), "big") / 1000

            def forward(self, x):
                return self.layer(self.scale * x)


        def net():
            return Net()
    """
    with pytest.raises(ConfigError, match="another process computes another gradient"):
        prepared(tmp_path, source)


def test_two_runs_with_modules_of_one_name_do_not_meet() -> None:
    """In one process: whichever is called imports its own."""

    def late() -> str:
        import of_two_runs  # type: ignore[import-not-found]

        return str(of_two_runs.WHOSE)

    import cloudpickle

    code = cloudpickle.dumps(late)
    one, other = (unpacked({"of_two_runs": Source(f"WHOSE = {whose!r}")}, code) for whose in ("one", "other"))
    assert [one(), other(), one()] == ["one", "other", "one"]


def test_a_bundle_needs_nothing_but_the_workers_code(tmp_path: Path) -> None:
    import cloudpickle

    def late() -> int:
        from of_nowhere import NUMBER  # type: ignore[import-not-found]

        return int(NUMBER)

    late.__module__ = "__main__"
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        (tmp_path / "code").write_bytes(bundle({"of_nowhere": Source("NUMBER = 7")}, cloudpickle.dumps(late)))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    lines = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))())"
    root = str(Path(__file__).resolve().parents[4])
    told = subprocess.run(
        [sys.executable, "-P", "-c", lines, str(tmp_path / "code")],
        env={"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "7\n"
