"""One name: what wheel and sdist hold, and that users' files may be called as our folders are.

Real commands and scripts in processes of their own, in folders where `cli.py`, `infra/`, `orchestrator/`,
`lambda_worker.py` and `tests/` are the user's; and what workers import of us.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PATIENCE_S = 300.0
NET = "nn.Sequential(nn.Linear(64, {hidden}), nn.ReLU(), nn.Linear({hidden}, 10))"
"""of the digits"""
FACTORIES = ("cli:mlp", "infra.nets:mlp", "orchestrator:mlp", "lambda_worker:mlp", "tests.nets:mlp")


def run(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in this environment, but for `variables`."""
    environment = {**os.environ, "GRADMUX_HOME": str(cwd / "home"), **variables}
    return subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def gradmux(*words: str, cwd: Path, python: str = sys.executable, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command line of ours, without the working directory on its path, as the installed script begins."""
    return run(python, "-P", "-m", "gradmux", *words, cwd=cwd, **variables)


# --- what is distributed ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, built by setuptools alone from a clean clone; a skip where that cannot be."""
    folder = tmp_path_factory.mktemp("built")
    clone = run("git", "clone", "--quiet", "--no-hardlinks", str(PROJECT), str(folder / "clone"), cwd=folder)
    if clone.returncode:
        pytest.skip(f"no clone of the project can be made here: {clone.stderr.strip()}")
    build = "import sys; from setuptools import build_meta as b; to = sys.argv[1]; b.build_sdist(to); b.build_wheel(to)"
    made = run(sys.executable, "-c", build, str(folder / "dist"), cwd=folder / "clone")
    if "No module named 'setuptools" in made.stderr:
        pytest.skip("setuptools is not installed here")
    assert made.returncode == 0, made.stderr[-2000:]
    return folder / "dist"


def test_a_wheel_holds_one_name(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        tops = {name.partition("/")[0] for name in names}
        (top_level,) = (name for name in names if name.endswith("top_level.txt"))
        assert archive.read(top_level).split() == [b"gradmux"]
    assert {top for top in tops if not top.endswith(".dist-info")} == {"gradmux"}
    needed = ("gradmux/orchestrator/loop.py", "gradmux/infra/aws/template.yaml", "gradmux/lambda_worker/handler.py")
    assert set(needed) <= set(names)
    assert "gradmux/py.typed" in names


def test_an_sdist_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    """Its modules lie in `gradmux/` alone; from it comes the wheel that the clone gives."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    modules = {path.relative_to(root).parts[0] for path in root.rglob("*.py")}
    assert modules <= {"gradmux", "setup.py", "tests"}
    build = "import sys; from setuptools import build_meta as b; b.build_wheel(sys.argv[1])"
    made = run(sys.executable, "-c", build, str(tmp_path / "dist"), cwd=root)
    assert made.returncode == 0, made.stderr[-2000:]
    contents = [zipfile.ZipFile(next(folder.glob("*.whl"))).namelist() for folder in (built, tmp_path / "dist")]
    assert sorted(contents[0]) == sorted(contents[1])


def test_what_the_wheel_holds_runs(built: Path, tmp_path: Path) -> None:
    """Unpacked, in front of everything else, from an empty folder."""
    (wheel,) = built.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    where = "import gradmux, gradmux.orchestrator.loop as loop; print(loop.__file__, gradmux.Job.__module__)"
    done = run(sys.executable, "-P", "-c", where, cwd=tmp_path, PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0].startswith(str(site)), done.stdout
    helped = gradmux("--help", cwd=tmp_path, PYTHONPATH=str(site))
    assert helped.returncode == 0, helped.stderr
    assert "submit" in helped.stdout


# --- what workers import ------------------------------------------------------------------------------------------


def test_a_worker_imports_nothing_of_the_client_s() -> None:
    """Neither our other rooms nor what only they need: it starts fast and its image stays small."""
    code = (
        "import importlib, pkgutil, sys, gradmux.lambda_worker as ours\n"
        "for module in pkgutil.iter_modules(ours.__path__, ours.__name__ + '.'):\n"
        "    importlib.import_module(module.name)\n"
        "print(*sorted(name for name in sys.modules if name.partition('.')[0] in ('gradmux', 'pydantic', 'click',\n"
        "    'scipy', 'matplotlib', 'rich', 'pyarrow', 'moto', 'cloudpickle', 'obstore', 'uvloop')))"
    )
    done = run(sys.executable, "-P", "-c", code, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    imported = done.stdout.split()
    assert "gradmux.lambda_worker.handler" in imported
    assert [name for name in imported if name != "gradmux" and not name.startswith("gradmux.lambda_worker")] == []


# --- the user's own names -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's files, each called as one of our folders."""
    made = tmp_path / "user"
    for package in ("infra", "orchestrator", "tests"):
        (made / package).mkdir(parents=True)
    module = f"from torch import nn\n\n\ndef mlp(hidden=8):\n    return {NET.format(hidden='hidden')}\n"
    (made / "cli.py").write_text(module)
    (made / "lambda_worker.py").write_text("from cli import mlp as other\n\n\ndef mlp():\n    return other(4)\n")
    (made / "orchestrator" / "__init__.py").write_text(module)
    (made / "infra" / "__init__.py").write_text("")
    (made / "infra" / "nets.py").write_text("import lambda_worker\n\n\ndef mlp():\n    return lambda_worker.mlp()\n")
    (made / "tests" / "nets.py").write_text(module)
    return made


def write_job(path: Path, factories: tuple[str, ...]) -> str:
    models = "".join(f'[[models]]\nname = "m{i}"\nfactory = "{name}"\n' for i, name in enumerate(factories))
    path.write_text(
        'name = "names"\nscheme = { name = "gc", s = 1 }\ncluster = { backend = "local", workers = 2 }\n'
        'data = { train = "digits:train", batch_size = 64 }\ntraining = { steps = 2 }\n' + models
    )
    return str(path)


def trained(done: subprocess.CompletedProcess[str]) -> Mapping[str, object]:
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_a_job_s_modules_may_be_called_as_ours(folder: Path, tmp_path: Path) -> None:
    """From another folder, so that workers find none of the files: what they build has come by value."""
    job = write_job(folder / "job.toml", FACTORIES)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    told = trained(gradmux("submit", job, "--json", cwd=elsewhere))
    assert told["state"] == "done"


def test_a_script_s_modules_may_be_called_as_ours(folder: Path, tmp_path: Path) -> None:
    """Functions beside it, through `train()`, from another working directory."""
    (folder / "train.py").write_text(
        "import numpy as np\n"
        "import cli, infra.nets, lambda_worker, orchestrator\n"
        "from tests.nets import mlp as tested\n"
        "from gradmux import Job, Model, train\n\n"
        "if __name__ == '__main__':\n"
        "    x = np.random.default_rng(0).normal(size=(256, 64)).astype('float32')\n"
        "    made = [cli.mlp, infra.nets.mlp, lambda_worker.mlp, orchestrator.mlp, tested]\n"
        "    models = [Model(f'm{i}', factory=factory) for i, factory in enumerate(made)]\n"
        "    job = Job(models=models, data=(x, np.arange(256) % 10), batch_size=64, steps=2, workers=2)\n"
        "    print(train(job, backend='local').run.state)\n"
    )
    done = run(sys.executable, str(folder / "train.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-1] == "done"


# --- dependencies that are installed by path ----------------------------------------------------------------------

DEPENDENCY = (
    "import threading\nfrom torch import nn\n\nLOCK = threading.Lock()  # no pickle can hold it\n\n\n"
    f"def mlp():\n    with LOCK:\n        return {NET.format(hidden=8)}\n"
)


@pytest.fixture
def dependency(tmp_path: Path) -> Path:
    """A folder of packages; none of its modules can travel by value."""
    made = tmp_path / "packages"
    (made / "gm_dependency").mkdir(parents=True)
    (made / "gm_dependency" / "__init__.py").write_text(DEPENDENCY)
    return made


def using(job_folder: Path) -> str:
    """A job with a function of the dependency itself, and one of the user's own that calls it."""
    job_folder.mkdir(exist_ok=True)
    (job_folder / "own.py").write_text("import gm_dependency\n\n\ndef mlp():\n    return gm_dependency.mlp()\n")
    return write_job(job_folder / "job.toml", ("gm_dependency:mlp", "own:mlp"))


def test_dependencies_on_the_python_path_are_installed(dependency: Path, tmp_path: Path) -> None:
    """Beside the job's folder, and below the working directory."""
    job = using(tmp_path / "job")
    assert trained(gradmux("submit", job, "--json", cwd=tmp_path / "job", PYTHONPATH=str(dependency)))
    assert trained(gradmux("submit", job, "--json", cwd=tmp_path, PYTHONPATH="packages"))


def test_the_job_s_own_folder_on_the_python_path_stays_the_user_s(folder: Path, tmp_path: Path) -> None:
    """What a worker gets holds the code itself: nothing of the folder's names is left to import."""
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from gradmux.orchestrator.training.code import importing_from, ship_code\n"
        "with importing_from(Path(sys.argv[1])):\n    print(type(ship_code('infra.nets:mlp', 'factory')).__name__)\n"
    )
    done = run(sys.executable, "-P", "-c", code, str(folder), cwd=tmp_path, PYTHONPATH=str(folder))
    assert done.stdout == "bytes\n", done.stderr


@pytest.fixture
def environment(tmp_path: Path) -> str:
    """Python of a virtual environment in which all packages, ours too, are found through `.pth` files."""
    venv.create(tmp_path / "venv", symlinks=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    ours = [entry for entry in sys.path if entry.endswith("site-packages")]
    (site / "all.pth").write_text("\n".join([str(PROJECT), *ours, str(tmp_path / "packages")]) + "\n")
    return str(tmp_path / "venv" / "bin" / "python")


def test_dependencies_through_a_pth_file_are_installed(dependency: Path, environment: str, tmp_path: Path) -> None:
    job = using(tmp_path / "job")
    assert trained(gradmux("submit", job, "--json", cwd=tmp_path / "job", python=environment))
