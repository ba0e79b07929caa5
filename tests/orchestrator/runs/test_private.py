"""What a run keeps is its owner's alone, whatever the umask was; what was open before is closed when it is opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradmux.orchestrator.disk import SHARED, GrowingFile, make_private, private_opener, tighten_all, write_whole
from gradmux.orchestrator.runs.index import index_file, opened_index
from gradmux.orchestrator.runs.lock import only_process
from gradmux.orchestrator.runs.log import LOGGER, logging_to
from gradmux.orchestrator.runs.paths import RunPaths, all_runs, create_run, find_run
from gradmux.orchestrator.runs.slots import Slots


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Everything below that others may look at or into."""
    found = {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}
    return {name: oct(mode) for name, mode in found.items() if mode & 0o077}


def fill(paths: RunPaths) -> None:
    write_whole(paths.job, [b"{}"])
    write_whole(paths.store_name, [b"small-0"])


@pytest.mark.usefixtures("umask")
def test_whatever_is_kept_is_its_owners_alone(tmp_path: Path) -> None:
    import logging

    home = tmp_path / "new" / "home"
    paths = create_run(home, "small", fill)
    record = GrowingFile(paths.record)
    record.append(b"{}\n")
    record.close()
    make_private(paths.weights("").parent)
    write_whole(paths.weights("net"), [b"weights"])
    with only_process(paths.lock, "small-1"), logging_to(paths.log), opened_index(index_file(home)) as index:
        logging.getLogger(LOGGER).warning("said")
        index.execute("BEGIN IMMEDIATE")
        index.execute("COMMIT")
        Slots(home / "slots" / "local", 4)
        assert modes(tmp_path) == {}
        assert {"home/runs.db", "home/runs/small-1/log.txt", "home/slots/local/ledger"} <= {
            str(path.relative_to(tmp_path / "new")) for path in home.rglob("*")
        }


def test_what_was_open_is_closed_when_it_is_opened(tmp_path: Path) -> None:
    home = tmp_path / "home"
    paths = create_run(home, "small", fill)
    with opened_index(index_file(home)):
        pass
    for path in (home, *home.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    assert [each.run for each in all_runs(home)] == ["small-1"]
    assert stat.S_IMODE(paths.folder.stat().st_mode) == 0o700
    find_run(home, "small-1")
    assert modes(home / "runs") == {}
    with opened_index(index_file(home)):
        pass
    create_run(home, "small", fill)
    assert modes(tmp_path) == {}


def test_a_folder_of_the_users_is_left_as_it_is(tmp_path: Path) -> None:
    """A home that is also a project, a folder with a job.json of their own, links, and files asked for by a path."""
    project = tmp_path / "project"
    project.mkdir(mode=0o755)
    project.chmod(0o755)
    for name in ("page.html", "job.json"):
        (project / name).write_text("{}")
        (project / name).chmod(0o644)
    create_run(project, "small", fill)
    find_run(tmp_path / "elsewhere", str(project))
    (project / "runs" / "small-1" / "link").symlink_to(project / "page.html")
    tighten_all(project / "runs")
    assert [stat.S_IMODE((project / name).stat().st_mode) for name in (".", "page.html", "job.json")] == [
        0o755, 0o644, 0o644,
    ]  # fmt: skip
    before = os.umask(0o022)
    write_whole(tmp_path / "exported", [b"data"], SHARED)
    os.umask(before)
    assert stat.S_IMODE((tmp_path / "exported").stat().st_mode) == 0o644


def test_a_file_that_others_could_read_is_closed_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o666)
    with open(path, "w", opener=private_opener) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
