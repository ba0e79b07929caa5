"""A folder as a store: objects are whole or not there, of two makers one wins, nothing stays behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gradmux.lambda_worker.objects import MissingObject, StoreError
from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.folder_store import FolderObjects, FolderStore
from gradmux.orchestrator.store import StoreUnavailable


def test_of_many_makers_one_wins(tmp_path: Path) -> None:
    store, won = FolderStore(tmp_path / "store"), []
    together = threading.Barrier(8)

    def make(number: int) -> None:
        together.wait()
        if store.create("runs/a/lives/000001", bytes([number])):
            won.append(number)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bytes([number]) for number in won] == [store.get("runs/a/lives/000001")]
    assert store.list("") == ["runs/a/lives/000001"], "no unfinished object is seen"


def test_empty_folders_go_while_others_write_there(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")

    def come_and_go(name: str) -> None:
        for _ in range(200):
            store.put(f"a/b/{name}", b"x")
            store.delete([f"a/b/{name}"])

    threads = [threading.Thread(target=come_and_go, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list((tmp_path / "store").iterdir()) == []


def test_what_workers_are_told(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    objects.put("results/1", b"0123")
    assert (objects.get("results/1"), objects.get_range("results/1", 1, 3)) == (b"0123", b"12")
    with pytest.raises(MissingObject, match="object 'results/2' does not exist"):
        objects.get("results/2")
    with pytest.raises(StoreError, match="has no bytes 2 to 9"):
        objects.get_range("results/1", 2, 9)


def test_a_place_where_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PreflightError, match="no store can be kept in"):
        FolderStore(tmp_path / "file" / "store")


def test_a_file_in_the_place_of_a_folder_is_one_line(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("runs/a", b"1")
    for write in (store.put, store.create):
        with pytest.raises(StoreUnavailable, match="a: a file is in the way: move it away") as caught:
            write("runs/a/b", b"2")
        assert "\n" not in str(caught.value)
        with pytest.raises(StoreUnavailable):
            write("runs/a/b/c", b"2")
    with pytest.raises(StoreError, match="in the way"):
        FolderObjects(tmp_path).put("runs/a/b", b"2")
    assert store.list("") == ["runs/a"]


@pytest.mark.parametrize("key", ["runs/a/b", "runs/a/b/c", "runs", "none"])
def test_a_key_that_is_part_of_another_is_of_no_object(tmp_path: Path, key: str) -> None:
    store, objects = FolderStore(tmp_path), FolderObjects(tmp_path)
    store.put("runs/a", b"1")
    for read in (lambda: store.get(key), lambda: store.get_range(key, 0, 1)):
        with pytest.raises(FileNotFoundError, match=f"no object {key} in"):
            read()
    for read in (lambda: objects.get(key), lambda: objects.get_range(key, 0, 1)):
        with pytest.raises(MissingObject):
            read()
    assert not store.exists(key)
    store.delete([key])
    assert store.get("runs/a") == b"1"


def test_a_folder_in_the_place_of_an_object_is_one_line(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("runs/a", b"1")
    with pytest.raises(StoreUnavailable, match="runs: a folder is in the way: move it away"):
        store.create("runs", b"2")
    with pytest.raises(StoreUnavailable, match="runs"):
        store.put("runs", b"2")
