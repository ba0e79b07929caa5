"""Full disks, stores that do not answer, signals and cancels: what stops a run, and what it leaves behind."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gradmux.orchestrator.backends import PlaceNote
from gradmux.orchestrator.daemons import DaemonThreads
from gradmux.orchestrator.disk import DiskError, GrowingFile, size_of_whole_lines, write_whole
from gradmux.orchestrator.errors import GradmuxError, Interrupted, PreflightError, RunCancelled, RunStopped
from gradmux.orchestrator.moving import moves
from gradmux.orchestrator.runs import patience
from gradmux.orchestrator.runs.cancelling import cancel
from gradmux.orchestrator.runs.detach import run_detached
from gradmux.orchestrator.runs.life import last_life, living, request_cancel, settle
from gradmux.orchestrator.runs.lock import Holder, RunBusy, holders, is_held, only_process
from gradmux.orchestrator.runs.patience import PatientStore
from gradmux.orchestrator.runs.status import State, status_of
from gradmux.orchestrator.runs.stopping import Stop, stop_on_signals
from gradmux.orchestrator.store import MemoryStore, StoreUnavailable
from tests.orchestrator.runs.bench import SmallJob, check_record
from tests.orchestrator.runs.disks import FAST_DISK, FullDisk

JOB = SmallJob()


def never() -> None:
    """Nobody wants it to stop."""


# --- full disks --------------------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_at_any_byte_stops_the_run_resumably(tmp_path: Path) -> None:
    expected = JOB.live(JOB.submit(tmp_path / "undisturbed"))
    stopped = 0
    for free in range(200, 12_000, 530):
        paths, trouble = JOB.submit(tmp_path / str(free)), ""
        try:
            weights = JOB.live(paths, FullDisk(free))
        except DiskError as error:
            trouble = str(error)
        if trouble:
            stopped += 1
            assert trouble.endswith("No space left on device; what was saved before is whole")
            assert len(trouble.splitlines()) == 1
            assert status_of(paths).state.resumable
            assert not list(paths.folder.rglob("*.unfinished")), "what was half written makes room again"
            weights = JOB.live(paths)
        assert weights == expected
        check_record(paths, JOB)
    assert DiskError.exit_code == 5
    assert stopped >= 10


def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "record"
    file = GrowingFile(path, FullDisk(25))
    file.append(b"twenty bytes of text\n")
    with pytest.raises(DiskError):
        file.append(b"twenty bytes of text\n")
    file.append(b"ok\n")
    file.close()
    assert path.read_bytes() == b"twenty bytes of text\nok\n"


def test_the_last_newline_is_found_however_far_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for head, tail in ((b"", b""), (b"a\n", b""), (b"a\nb\n", b"c" * 200_000), (b"", b"c" * 70_000)):
        path.write_bytes(head + tail)
        assert size_of_whole_lines(path) == len(head)


def test_a_file_is_replaced_whole_and_its_folder_must_be_there(tmp_path: Path) -> None:
    write_whole(tmp_path / "f", [b"old"], FAST_DISK)
    write_whole(tmp_path / "f", [b"n", memoryview(b"ew")], FAST_DISK)
    assert (tmp_path / "f").read_bytes() == b"new"
    with pytest.raises(DiskError, match="No such file or directory"):
        write_whole(tmp_path / "nowhere" / "f", [b""], FAST_DISK)


# --- stores ------------------------------------------------------------------------------------------------------


class Moody(MemoryStore):
    """A store that raises what it is given, call by call, before it answers."""

    def __init__(self, moods: list[Exception]) -> None:
        super().__init__()
        self.moods = moods
        self.closed = False

    def get(self, key: str) -> bytes:
        if self.moods:
            raise self.moods.pop(0)
        return super().get(key)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True


def patient(moods: list[Exception], patience_s: float, should_stop: Callable[[], None] = never) -> PatientStore:
    shared = Moody(moods)
    shared.put("k", b"v")
    return PatientStore(lambda: shared, patience_s=patience_s, should_stop=should_stop)


def test_trouble_is_waited_out_with_a_new_client_and_new_credentials() -> None:
    made: list[Moody] = []

    def connect() -> Moody:
        store = Moody([PreflightError("expired")] if not made else [])
        store.put("k", b"v")
        made.append(store)
        return store

    store = PatientStore(connect, patience_s=30, should_stop=never)
    assert store.get("k") == b"v"
    assert [client.closed for client in made] == [True, False]
    store.close()


def test_patience_ends_resumably() -> None:
    store = patient([StoreUnavailable("503 SlowDown")] * 100, patience_s=0.3)
    with pytest.raises(RunStopped, match=r"503 SlowDown; waited 0\.3 s, then gave up"):
        store.get("k")
    store.close()


def test_a_missing_key_is_an_answer() -> None:
    store = patient([], patience_s=30)
    with pytest.raises(FileNotFoundError):
        store.get("other")
    assert store.exists("k")
    assert store.list("") == ["k"]
    store.delete(["k"])
    assert not store.exists("k")
    store.close()


def test_who_wants_to_stop_is_heard_while_the_store_is_silent() -> None:
    silence, answered = threading.Event(), []

    class Silent(Moody):
        def get(self, key: str) -> bytes:
            silence.wait(60)
            answered.append(key)
            return b""

    stop = Stop()
    store = PatientStore(lambda: Silent([]), patience_s=30, should_stop=stop.check)
    timer = threading.Timer(0.1, stop.ask, ["interrupted"])
    timer.start()
    with pytest.raises(Interrupted):
        store.get("k")
    assert answered == []
    assert not store.at_once(lambda client: client.put("x", b""), limit_s=0.0) or store.exists("x")
    silence.set()
    store.close()


class Hanging(Moody):
    """A store of which every call but `close` waits for `go_on`, after it has told how many bytes it is to move."""

    where = "bucket b at http://127.0.0.1:1"

    def __init__(self, size_bytes: int = 0) -> None:
        super().__init__([])
        self.go_on, self.size_bytes = threading.Event(), size_bytes

    def _hang(self, *_: object) -> Any:
        moves(self.size_bytes)
        self.go_on.wait(60)

    put = create = get = view = get_range = exists = delete = list = put_many = view_many = _hang


CALLS: dict[str, Callable[[PatientStore], object]] = {
    "put": lambda store: store.put("k", b""),
    "create": lambda store: store.create("k", b""),
    "get": lambda store: store.get("k"),
    "view": lambda store: store.view("k"),
    "get_range": lambda store: store.get_range("k", 0, 1),
    "exists": lambda store: store.exists("k"),
    "delete": lambda store: store.delete(["k"]),
    "list": lambda store: store.list("k"),
    "put_many": lambda store: store.put_many({"k": b""}),
    "view_many": lambda store: store.view_many(["k"]),
}


@pytest.mark.parametrize("call", CALLS)
def test_patience_ends_whatever_call_gets_no_answer(call: str) -> None:
    hanging = Hanging()
    store = PatientStore(lambda: hanging, patience_s=0.0, should_stop=never)
    with pytest.raises(RunStopped) as ended:
        CALLS[call](store)
    assert re.fullmatch(
        r"bucket b at http://127\.0\.0\.1:1 does not answer, or too slowly \(asked (for|to) .*\b[k1]\b.*\); "
        r"waited 0 s, then gave up",
        str(ended.value),
    )
    assert not store.at_once(lambda client: client.put("x", b""), 60.0), "it is not asked again"
    hanging.go_on.set()
    store.close()


def test_an_answer_of_many_bytes_may_take_longer_than_patience() -> None:
    """A gigabyte needs its time on any line; who asks for it does not know how large it is."""
    hanging = Hanging(1 << 30)
    store = PatientStore(lambda: hanging, patience_s=0.0, should_stop=never)
    threading.Timer(0.5, hanging.go_on.set).start()
    assert store.get("k") is None
    hanging.go_on.clear()
    threading.Timer(0.5, hanging.go_on.set).start()
    store.put("k", memoryview(bytearray(1 << 24)))
    store.close()


def test_silence_is_told_long_before_patience_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "TOLD_S", 0.0)
    hanging = Hanging()
    store = PatientStore(lambda: hanging, patience_s=30.0, should_stop=never)
    threading.Timer(0.6, hanging.go_on.set).start()
    store.get("weights/1")
    (line,) = caplog.messages
    assert line.startswith(
        "waiting for bucket b at http://127.0.0.1:1 since 0 s, up to 30 s more: asked for weights/1; "
    )
    store.close()


def test_a_call_that_hangs_does_not_keep_the_process_from_ending() -> None:
    program = """
import threading
from gradmux.orchestrator.daemons import DaemonThreads
threads, began = DaemonThreads(2, "t"), threading.Event()
def hang(): began.set(); threading.Event().wait()
threads.submit(hang); began.wait()
print(threads.submit(int, "7").result())
threads.shutdown()
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("7\n", "")


def test_threads_are_no_more_than_asked_for_and_all_calls_are_made() -> None:
    threads, seen = DaemonThreads(3, "t"), set()

    def call(number: int) -> int:
        seen.add(threading.current_thread().name)
        if number % 7 == 3:
            raise ValueError(str(number))
        return number

    calls = [threads.submit(call, number) for number in range(100)]
    for number, made in enumerate(calls):
        assert (str(made.exception()), number % 7 == 3) in ((str(number), True), ("None", False))
    assert list(threads.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
    assert seen <= {"t-0", "t-1", "t-2"}
    threads.shutdown(cancel_futures=True)
    with pytest.raises(RuntimeError):
        threads.submit(call, 1)


# --- signals, locks and cancels ----------------------------------------------------------------------------------


def test_the_first_signal_asks_and_a_second_ctrl_c_leaves() -> None:
    stop, told = Stop(), []
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals(stop, told.append):
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted, match="ended by SIGTERM"):
            stop.check()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert len(told) == 2
    assert signal.getsignal(signal.SIGTERM) is before


def test_one_process_at_a_time_and_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)
    with only_process(lock, "r-1"):
        assert is_held(lock)
        with pytest.raises(RunBusy, match="r-1 is being run by another process"), only_process(lock, "r-1"):
            pass
    assert lock.exists()
    assert not is_held(lock)


def test_another_programs_lock_on_a_run_is_named(tmp_path: Path) -> None:
    """A backup or a file server locks what it reads: two runs could not be told apart, so none begins."""
    paths = JOB.submit(tmp_path)
    with paths.lock.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        me = rf"process {os.getpid()} \(.+\)"
        with pytest.raises(RunBusy, match=rf"lock is locked by {me}, which does not run small-1: ") as refused:
            JOB.live(paths)
        assert "\n" not in str(refused.value)
        assert status_of(paths).state is State.CREATED
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunBusy, match=rf"small-1 is being run by another process \({me}\)"):
            JOB.live(paths)
    JOB.live(paths)


def test_holders_are_read_from_the_kernels_list(tmp_path: Path) -> None:
    lock, listed = tmp_path / "lock", tmp_path / "locks"
    lock.touch()
    about = lock.stat()
    place = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}"
    listed.write_text(
        f"1: FLOCK  ADVISORY  READ 0 {place}:{about.st_ino} 0 EOF\n"
        f"2: FLOCK  ADVISORY  WRITE 12 {place}:{about.st_ino}1 0 EOF\n"
        f"3: FLOCK  ADVISORY  WRITE 13 {place}:{about.st_ino} 0 EOF\n"
        f"3: -> FLOCK  ADVISORY  WRITE 14 {place}:{about.st_ino} 0 EOF\n"
        f"4: POSIX  ADVISORY  WRITE 15 {place}:{about.st_ino} 0 EOF\n"
        f"5: FLOCK  ADVISORY  READ 16 ff:ff:{about.st_ino} 0 EOF\n"
        f"6: OFDLCK ADVISORY  READ -1 {place}:{about.st_ino} 0 EOF\nrubbish\n"
    )
    assert holders(lock, listed) == [Holder(0, shared=True), Holder(13, shared=False)]
    assert Holder(0, shared=True).describe() == "a process outside of this container"
    assert holders(lock, tmp_path / "no list") == []
    assert holders(tmp_path / "no lock", listed) == []


RUNS = """
import sys, time
from pathlib import Path
from gradmux.orchestrator.runs.life import living
from gradmux.orchestrator.runs.paths import RunPaths
paths, over = RunPaths(Path(sys.argv[2])), Path(sys.argv[2]) / "over"
try:
    with living(paths, int(sys.argv[4])):
        while not over.exists():
            time.sleep(0.05)
except Exception as error:
    sys.exit(f"gradmux: {error}")
"""


def test_of_detached_resumes_at_once_exactly_one_says_that_it_runs(tmp_path: Path) -> None:
    paths = JOB.submit(tmp_path)
    together, told = threading.Barrier(3), []

    def resume() -> None:
        together.wait()
        try:
            told.append(run_detached(paths, [sys.executable, "-c", RUNS]).describe())
        except GradmuxError as error:
            told.append(str(error))

    threads = [threading.Thread(target=resume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        life = last_life(paths)
        assert life is not None
        assert sorted(line.startswith(f"small-1 runs in process {life.pid}: ") for line in told) == [False, False, True]
        assert sum(line.startswith("small-1 is being run by another process") for line in told) == 2
        assert status_of(paths).lives == 0
        with pytest.raises(RunBusy):
            run_detached(paths, [sys.executable, "-c", RUNS])
    finally:
        (paths.folder / "over").touch()
    while is_held(paths.lock):
        pass


def test_a_detached_resume_that_came_late_says_that_another_was_first(tmp_path: Path) -> None:
    """It began when the run was free; before it had read the job, another one had taken the run and had ended."""
    paths = JOB.submit(tmp_path)
    late = (
        "import json, os, sys; from pathlib import Path\n"
        "life = {'epoch': int(sys.argv[4]), 'pid': os.getppid(), 'host': '', 'started': '', 'place': None}\n"
        "folder = Path(sys.argv[2]); (folder / 'new').write_text(json.dumps(life)); "
        "(folder / 'new').rename(folder / 'life.json')"
    )
    with pytest.raises(RunBusy, match="has been resumed by another process meanwhile: `gradmux status small-1`"):
        run_detached(paths, [sys.executable, "-c", late])


def test_a_cancel_before_the_first_life_counts_and_a_resume_goes_past_it(tmp_path: Path) -> None:
    paths = JOB.submit(tmp_path)
    told = cancel(paths, lambda life: pytest.fail("it has no workers yet"), patience_s=0.0)
    assert (told.state, told.in_flight, told.workers_told) == (State.CANCELLED, 0, False)
    with pytest.raises(RunCancelled):
        JOB.live(paths, epoch=0)
    assert status_of(paths).state is State.CANCELLED
    JOB.live(paths)
    assert status_of(paths).state is State.DONE
    assert "nothing to cancel" in cancel(paths, lambda life: True, 0.0).describe()


def test_a_life_with_a_number_that_was_had_already_is_refused(tmp_path: Path) -> None:
    paths = JOB.submit(tmp_path)
    with living(paths, 4):
        pass
    with pytest.raises(RunBusy, match="has been resumed by another process"), living(paths, 4):
        pass
    request_cancel(paths, 9)
    with living(paths) as life:
        assert life.epoch == 10


def test_a_cancel_tells_the_workers_first_and_says_what_may_still_be_billed(tmp_path: Path) -> None:
    """The process was killed, so nobody knows what was in flight: at most a timeout long it can be billed."""
    paths = JOB.submit(tmp_path)
    seen = []
    with living(paths) as life:
        settle(paths, life, PlaceNote("aws", timeout_s=45.0))
    told = cancel(paths, lambda life: seen.append((life.epoch, paths.cancel.exists())) is None, patience_s=0.0)
    assert seen == [(0, False)], "the marker comes before anything else"
    assert (told.state, told.in_flight, told.longest_s, told.workers_told) == (State.CANCELLED, None, 45.0, True)
    assert "may still run, and be billed, for 45 s at most" in told.describe()


def test_a_cancelled_run_takes_what_is_in_flight_before_it_ends(tmp_path: Path) -> None:
    """Whoever cancels wants to know that nothing is billed any more."""
    job = SmallJob("uncoded", {}, failing=0.0, steps=50)
    paths = job.submit(tmp_path)
    looks = 0

    def between() -> None:
        nonlocal looks
        looks += 1
        if looks == 20:
            request_cancel(paths, 0)

    with pytest.raises(RunCancelled):
        job.live(paths, between=between)
    status = status_of(paths)
    assert (status.state, status.in_flight) == (State.CANCELLED, 0)
    assert 0 < status.share < 1
