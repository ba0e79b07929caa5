"""A run whose folder is kept in the store: it goes on on another machine, and never on two at once."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gradmux.orchestrator.errors import ConfigError, RunStopped
from gradmux.orchestrator.runs.history import read_history
from gradmux.orchestrator.runs.life import last_life, store_name
from gradmux.orchestrator.runs.lock import RunBusy
from gradmux.orchestrator.runs.mirror import bring, last_claimed
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.status import State, status_of
from gradmux.orchestrator.store import Keys, MemoryStore, S3Store
from tests.orchestrator.conftest import BUCKET
from tests.orchestrator.runs.bench import FAST, SmallJob, check_record
from tests.orchestrator.runs.disks import Died, DyingDisk

JOB = SmallJob("pipeline", {"n": 4, "s": 1}, workers=4, models=2, steps=6, every=1)


def keys_of(paths: RunPaths) -> Keys:
    return Keys(store_name(paths))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return JOB.live(JOB.submit(tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.parametrize("at", range(20, 130, 25))
def test_a_machine_that_is_lost_at_any_write_is_followed_by_another(
    at: int, tmp_path: Path, expected: list[str]
) -> None:
    store = MemoryStore()
    paths = JOB.submit(tmp_path / "first")
    keys = keys_of(paths)
    with pytest.raises(Died):
        JOB.live(paths, DyingDisk(at), store=store)
    shutil.rmtree(tmp_path / "first")
    if last_claimed(store, keys) < 0:
        pytest.skip("it was lost before it had begun")
    brought = bring(store, keys, tmp_path / "second", disk=FAST)
    assert status_of(brought).state.resumable
    assert JOB.live(brought, store=store) == expected
    check_record(brought, JOB)
    assert len(store.list(keys.checkpoint(""))) == 2


def test_what_is_done_elsewhere_is_known_here_when_it_is_asked_for(tmp_path: Path, expected: list[str]) -> None:
    store = MemoryStore()
    first = JOB.submit(tmp_path / "first")
    with pytest.raises(Died):
        JOB.live(first, DyingDisk(90), store=store)
    second = bring(store, keys_of(first), tmp_path / "second", disk=FAST)
    JOB.live(second, store=store)
    with pytest.raises(RunBusy, match=r"resumed on another machine: `gradmux resume s3://b/runs/small-"):
        JOB.live(first, store=store)
    again = bring(store, keys_of(first), tmp_path / "first", disk=FAST)
    assert again == first
    assert status_of(first).state is State.DONE
    assert read_history(first.record) == read_history(second.record)


def test_averages_of_weights_are_kept_and_come_along(tmp_path: Path) -> None:
    """A folder in the folder of weights."""
    store, paths = MemoryStore(), JOB.submit(tmp_path / "first")
    for file in (paths.weights("m"), paths.average("m")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(str(file.parent.name).encode())
    JOB.live(paths, store=store)
    store.put(keys_of(paths).folder("result.json"), b'{"models": [{"name": "m"}]}')
    brought = bring(store, keys_of(paths), tmp_path / "second", disk=FAST)
    assert (brought.weights("m").read_bytes(), brought.average("m").read_bytes()) == (b"weights", b"ema")


def test_a_budget_that_one_machine_raised_is_known_to_the_others(tmp_path: Path) -> None:
    """To one that has the run already, and to one that has not."""
    store = MemoryStore()
    first = JOB.submit(tmp_path / "first")
    with pytest.raises(Died):
        JOB.live(first, DyingDisk(60), store=store)
    second = bring(store, keys_of(first), tmp_path / "second", disk=FAST)
    raised = b'{"name": "small", "cluster": {"max_cost_usd": 5}}'
    second.job.write_bytes(raised)
    with pytest.raises(Died):
        JOB.live(second, DyingDisk(60), store=store)
    for home in ("first", "third"):
        assert bring(store, keys_of(first), tmp_path / home, disk=FAST).job.read_bytes() == raised


def test_a_machine_that_was_taken_over_stops_at_its_next_checkpoint(tmp_path: Path, expected: list[str]) -> None:
    store = MemoryStore()
    first = JOB.submit(tmp_path / "first")
    half_way, taken_over = threading.Event(), threading.Event()

    def between() -> None:
        if len(store.list(keys_of(first).checkpoint(""))) == 2 and not half_way.is_set():
            half_way.set()
            assert taken_over.wait(30)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(JOB.live, first, between=between, store=store)
        assert half_way.wait(30)
        second = bring(store, keys_of(first), tmp_path / "second", disk=FAST)
        got = JOB.live(second, store=store)
        taken_over.set()
        with pytest.raises(RunStopped, match=r"resumed on another machine since \(life 1\)"):
            running.result(30)
    assert got == expected
    check_record(second, JOB)
    third = bring(store, keys_of(first), tmp_path / "third", disk=FAST)
    assert read_history(third.record) == read_history(second.record), "what the first wrote after that is not in it"


def test_a_folder_here_that_is_newer_is_kept_and_a_busy_one_left_alone(tmp_path: Path) -> None:
    store = MemoryStore()
    paths = JOB.submit(tmp_path)
    with pytest.raises(Died):
        JOB.live(paths, DyingDisk(90), store=store)
    before = paths.record.read_bytes()
    store.put(keys_of(paths).cancel, b"3")
    assert bring(store, keys_of(paths), tmp_path, disk=FAST) == paths
    assert paths.record.read_bytes() == before
    assert status_of(paths).state is State.CANCELLED
    inside: list[str] = []

    def between() -> None:
        if not inside:
            with pytest.raises(RunBusy, match="runs on this machine"):
                bring(store, keys_of(paths), tmp_path, disk=FAST)
            inside.append("seen")

    JOB.live(paths, between=between, store=store)
    life = last_life(paths)
    assert life is not None
    assert (inside, life.epoch) == (["seen"], 4)


def test_nothing_to_resume_is_one_line(tmp_path: Path) -> None:
    store = MemoryStore()
    with pytest.raises(ConfigError, match="there is no run under runs/digits-x/"):
        bring(store, Keys("digits-x"), tmp_path)
    store.put(Keys("digits-x").folder("lives/000000"), b"{}")
    store.put(Keys("digits-x").folder("job.json"), b"[1]")
    with pytest.raises(ConfigError, match="does not describe a job"):
        bring(store, Keys("digits-x"), tmp_path)


def test_of_two_clients_at_once_one_makes_the_object(s3_endpoint: str, aws_environment: pytest.MonkeyPatch) -> None:
    store = S3Store(BUCKET, endpoint_url=s3_endpoint)
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda n: store.create("claims/1", b"%d" % n), range(8)))
    assert made.count(True) == 1
    assert store.get("claims/1") == b"%d" % made.index(True)
    store.close()
