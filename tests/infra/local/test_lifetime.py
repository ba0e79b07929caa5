"""Nothing is left behind: after the block, after kill -9 of the parent, after Ctrl-C; a failed start is one line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gradmux.infra.local import Emulator, EmulatorConfig, EmulatorError, down, status, up
from gradmux.infra.local.processes import start_time
from tests.infra.local.conftest import SAMPLES, client_of

CONFIG = EmulatorConfig(handler=SAMPLES, preload=(), warm=3)
PARENT = """
import json, sys, time
from gradmux.infra.local import Emulator, EmulatorConfig
with Emulator(EmulatorConfig(handler="gradmux.infra.local.samples:handler", preload=(), warm=3)) as emulator:
    pids = [pid for pid, _ in emulator.started.processes.values()]
    print(json.dumps(pids + [each["pid"] for each in emulator.admin.sandboxes()]), flush=True)
    time.sleep(60)
"""


def pids_of(emulator: Emulator) -> list[int]:
    processes = [pid for pid, _ in emulator.started.processes.values()]
    return processes + [each["pid"] for each in emulator.admin.sandboxes()]


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """Lists the directories of living emulators that this test started."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return lambda: list(tmp_path.glob("gradmux-local-*"))


def assert_all_end(pids: list[int], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while any(start_time(pid) is not None for pid in pids):
        left = [pid for pid in pids if start_time(pid) is not None]
        assert time.monotonic() < deadline, f"still alive: {left}"
        time.sleep(0.02)


@contextmanager
def parent_with_an_emulator() -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Another process that holds an emulator, and the pids of that emulator."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    try:
        pids = json.loads(parent.stdout.readline())
        assert len(pids) == 6
        yield parent, pids
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_nothing_is_left_after_the_block(roots: Callable[[], list[Path]]) -> None:
    with Emulator(CONFIG) as emulator:
        pids = pids_of(emulator)
        assert len(pids) == 6
        assert len(roots()) == 1
    assert all(start_time(pid) is None for pid in pids)
    assert roots() == []
    with pytest.raises(EmulatorError, match="not running"):
        _ = emulator.lambda_endpoint


def test_nothing_is_left_after_kill_9_of_the_parent(roots: Callable[[], list[Path]]) -> None:
    with parent_with_an_emulator() as (parent, pids):
        assert len(roots()) == 1
        parent.kill()
        assert_all_end(pids)
        assert roots() == []


@pytest.mark.parametrize("stopped", [(0,), (1,), (2,), (3, 4, 5), (0, 1, 2, 3, 4, 5)])
def test_nothing_is_left_after_kill_9_of_the_parent_while_parts_are_stopped(
    stopped: tuple[int, ...], roots: Callable[[], list[Path]]
) -> None:
    with parent_with_an_emulator() as (parent, pids):
        for index in stopped:
            os.kill(pids[index], signal.SIGSTOP)
        parent.kill()
        try:
            assert_all_end(pids, 8)
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        assert roots() == []


def test_nothing_is_left_after_the_block_though_all_is_stopped(roots: Callable[[], list[Path]]) -> None:
    with Emulator(CONFIG) as emulator:
        pids = pids_of(emulator)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    assert all(start_time(pid) is None for pid in pids)
    assert roots() == []


def test_nothing_is_left_when_the_server_dies_while_the_rest_is_stopped(roots: Callable[[], list[Path]]) -> None:
    with Emulator(CONFIG) as emulator:
        pids = pids_of(emulator)
        for pid in pids[1:]:
            os.kill(pid, signal.SIGSTOP)
        os.kill(pids[0], signal.SIGKILL)
        assert_all_end(pids)
        assert roots() == []


def test_nothing_is_left_after_ctrl_c() -> None:
    with parent_with_an_emulator() as (parent, pids):
        parent.send_signal(signal.SIGINT)
        assert parent.wait(60) != 0
        assert all(start_time(pid) is None for pid in pids)


@pytest.mark.parametrize("part", ["server", "zygote", "moto"])
def test_nothing_is_left_when_a_part_dies(part: str, roots: Callable[[], list[Path]]) -> None:
    with Emulator(CONFIG) as emulator:
        pids = pids_of(emulator)
        os.kill(emulator.started.processes[part][0], signal.SIGKILL)
        assert_all_end(pids)
        assert roots() == []


def test_nothing_is_left_when_a_call_is_still_running() -> None:
    with Emulator(CONFIG) as emulator:
        pids = pids_of(emulator)
        event = json.dumps({"do": "sleep", "seconds": 50})
        client_of(emulator, "lambda").invoke(FunctionName=CONFIG.function, InvocationType="Event", Payload=event)
    assert all(start_time(pid) is None for pid in pids)


@pytest.mark.parametrize("which", ["lambda_port", "s3_port"])
def test_a_port_in_use_is_one_line_that_names_it(which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = EmulatorConfig(**{"handler": SAMPLES, "preload": (), which: port})
        with pytest.raises(EmulatorError, match=f"port {port} for .* cannot be used") as refused, Emulator(config):
            pass
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        ("no_such_module:handler", "No module named 'no_such_module'"),
        ("json:nothing", "has no attribute 'nothing'"),
        ("raises_at_import:handler", "the process that workers are forked from ended: ValueError: not today"),
    ],
)
def test_a_handler_that_cannot_be_loaded_is_one_line(
    handler: str, complaint: str, tmp_path: Path, roots: Callable[[], list[Path]]
) -> None:
    (tmp_path / "raises_at_import.py").write_text("raise ValueError('not today')")
    with (
        pytest.raises(EmulatorError, match=complaint) as refused,
        Emulator(EmulatorConfig(handler=handler, preload=(), python_path=(str(tmp_path),))),
    ):
        pass
    assert "\n" not in str(refused.value)
    assert roots() == []


@pytest.mark.parametrize(
    "wrong",
    [{"handler": "x"}, {"timeout_s": 901.0}, {"memory_mb": 64}, {"concurrency": 0}, {"warm": -1}, {"event_retries": 3}],
)
def test_a_wrong_configuration_is_refused_before_anything_starts(wrong: dict[str, object]) -> None:
    with pytest.raises(EmulatorError, match=next(iter(wrong))):
        EmulatorConfig(**wrong)  # type: ignore[arg-type]


def test_a_service_outlives_the_command_that_started_it(tmp_path: Path) -> None:
    program = "import sys; from tests.infra.local.test_lifetime import *; up(Path(sys.argv[1]), CONFIG)"
    assert status(tmp_path) is None
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    try:
        running = status(tmp_path)
        assert running is not None
        assert len(running.admin.sandboxes()) == 3
        assert up(tmp_path, CONFIG).started == running.started
        with pytest.raises(EmulatorError, match="with other settings"):
            up(tmp_path, EmulatorConfig(handler=SAMPLES, preload=(), memory_mb=512))
        pids = [pid for pid, _ in running.started.processes.values()]
    finally:
        assert down(tmp_path)
    assert all(start_time(pid) is None for pid in pids)
    assert status(tmp_path) is None
    assert not down(tmp_path)


def test_a_pid_that_now_belongs_to_another_is_not_trusted(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        state = {"lambda_port": 1, "s3_port": 2, "processes": {"server": [stranger.pid, 12345]}, "config": {}}
        (tmp_path / "local.json").write_text(json.dumps(state))
        assert status(tmp_path) is None
        assert not down(tmp_path)
        assert stranger.poll() is None
        assert not (tmp_path / "local.json").exists()
        stranger.kill()


@pytest.mark.parametrize("state", ["{", "[]", "{}", '{"processes": 3}', '{"processes": {"server": 1}}', "\udcff"])
def test_a_broken_state_file_is_no_emulator(tmp_path: Path, state: str) -> None:
    (tmp_path / "local.json").write_bytes(state.encode(errors="surrogateescape"))
    assert status(tmp_path) is None


def test_a_home_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    home = tmp_path / "file" / "home"
    with pytest.raises(EmulatorError, match=r"nothing can be kept in the home folder .*: Not a directory"):
        up(home, CONFIG)
    assert status(home) is None
    assert not down(home)
