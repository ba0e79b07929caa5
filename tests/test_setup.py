"""The set-up script: where PyTorch comes from, and by what it is installed; with stand-ins for index, Python and uv."""

from __future__ import annotations

import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "setup_venv.sh"
PAGE = b'<a href="torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl">torch</a>'
PYTHON = f"""#!/bin/bash
case "$*" in
    "-m pip "*) echo "pip ${{*:3}}" >> "$LOG"; if [[ "$*" == *--index-url* ]]; then exit "${{REFUSES:-0}}"; fi ;;
    *'print('*) echo gradmux 0.1.0 with torch 2.13.0 ;;
    *'m.version("torch")'*) exit 1 ;;
    "- http"*) exec {sys.executable} "$@" ;;
esac
"""
UV = '#!/bin/bash\necho "uv $*" >> "$LOG"\n'


class Index(http.server.BaseHTTPRequestHandler):
    """One page of wheels, at /torch/."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/torch/" else 404)
        self.end_headers()
        self.wfile.write(PAGE if self.path == "/torch/" else b"")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing to say."""


@pytest.fixture
def index() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def silent() -> Iterator[str]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What the script needs of one, with an environment that is there already."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "constraints.txt").write_text("numpy==2.0.0\ntorch==2.13.0\n")
    program(tmp_path / ".venv" / "bin" / "python", PYTHON)
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def set_up(project: Path, torch_index: str, **variables: str) -> tuple[str, list[str]]:
    """What the script says, and what it had installed."""
    log = project / "log"
    log.write_text("")
    path = os.pathsep.join([str(project / "bin"), "/usr/bin", "/bin"])
    environment = {"PATH": path, "LOG": str(log), "TORCH_INDEX": torch_index, "no_proxy": "127.0.0.1", **variables}
    words = ["bash", str(project / "scripts" / "setup_venv.sh"), ".venv"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, log.read_text().splitlines()


def test_cpu_wheels_of_an_index_that_answers_are_preferred(project: Path, index: str) -> None:
    said, installed = set_up(project, index)
    assert f"PyTorch: a CPU build from {index}\n" in said
    torch, rest = installed
    assert f"--index-url {index} --no-deps torch==2.13.0" in torch
    assert rest.endswith("--constraint constraints.txt --editable .[dev]")
    assert "--index-url" not in rest


def test_without_an_answer_pip_finds_it(project: Path, silent: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"http://127.0.0.1:{server.getsockname()[1]}"
    for nowhere in (silent, closed, ""):
        said, installed = set_up(project, nowhere)
        assert "does not answer; taking what pip finds" in said
        assert [line.endswith("--editable .[dev]") for line in installed] == [True]


def test_an_index_without_a_wheel_for_this_machine_is_no_end(project: Path, index: str) -> None:
    said, installed = set_up(project, index, REFUSES="1")
    assert f"{index} has no torch==2.13.0 for this machine; taking what pip finds" in said
    assert len(installed) == 2


def test_uv_is_used_where_it_is_installed(project: Path, index: str) -> None:
    program(project / "bin" / "uv", UV)
    said, installed = set_up(project, index)
    assert "into .venv by uv" in said
    assert [line.split()[:3] for line in installed] == [["uv", "pip", "install"]] * 2
    assert all("--python .venv/bin/python" in line for line in installed)
