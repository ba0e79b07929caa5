"""What may not fit together in the folder of a run: found before anything is trained, mended or refused in one line."""

from __future__ import annotations

import json
import os
import socket
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.errors import ConfigError, GradmuxError, Interrupted
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.ports import ModelState
from gradmux.orchestrator.record import Header, decode_line, encode_line, read_record
from gradmux.orchestrator.runs.checkpoints import MANIFEST, Checkpoints, Manifest, read_checkpoint
from gradmux.orchestrator.runs.history import DONE, RUN, UNRECORDED, read_history
from gradmux.orchestrator.runs.index import statuses
from gradmux.orchestrator.runs.layout import require_layout
from gradmux.orchestrator.runs.life import FolderError, store_name
from gradmux.orchestrator.runs.materials import keep, kept
from gradmux.orchestrator.runs.paths import RunPaths, find_run
from gradmux.orchestrator.runs.resuming import find_again
from gradmux.orchestrator.runs.standing import require_standing, unrecorded
from gradmux.orchestrator.runs.status import State, status_of
from gradmux.orchestrator.runs.stopping import Stop
from gradmux.orchestrator.training.data import Dataset
from tests.orchestrator.runs.bench import FAST, SmallJob

JOB = SmallJob("gc", {"s": 1}, models=2, steps=6, every=1, failing=0.0)


def config(steps: int = 6, models: Sequence[str] = JOB.names, **cluster: Any) -> JobConfig:
    """As the job might say it."""
    tree = {
        "name": "small",
        "cluster": {"workers": 6, "timeout_s": 5.0, "concurrency": 30, **cluster},
        "scheme": {"name": "gc", "s": 1},
        "data": {"train": "digits:train", "batch_size": 30},
        "training": {"steps": steps},
        "models": [{"name": each, "factory": "a:b", "optimizer": {"name": "SGD", "lr": 0.1}} for each in models],
    }
    return parse_job(tree, "test")


@pytest.fixture
def stopped(tmp_path: Path) -> RunPaths:
    """A run that was stopped after some steps, with its two checkpoints."""
    paths, events = JOB.submit(tmp_path / "home"), 0
    stop = Stop(look_s=0.0)

    def between() -> None:
        nonlocal events
        events += 1
        if len(Checkpoints(paths.checkpoints).files()) == 2 and events > 40:
            stop.ask("enough")

    with pytest.raises(Interrupted):
        JOB.live(paths, stop=stop, between=between)
    assert 0 < sum(read_history(paths.record).steps) < 12
    return paths


@contextmanager
def refused(match: str, kind: type[GradmuxError] = GradmuxError) -> Iterator[None]:
    """One line, exit code 2."""
    with pytest.raises(kind, match=match) as caught:
        yield
    assert caught.value.exit_code == 2
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any], **members: bytes) -> None:
    """The same checkpoint with another manifest, and members put in their places."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(held[MANIFEST])
    changed = change(manifest)
    held[MANIFEST] = json.dumps(manifest if changed is None else changed).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**held, **members}.items():
            archive.writestr(name, content)


# --- the record and the checkpoint ---------------------------------------------------------------------------------


def test_what_fits_says_nothing(stopped: RunPaths, caplog: pytest.LogCaptureFixture) -> None:
    require_standing(stopped, config())
    require_standing(stopped, config(steps=60))
    require_standing(JOB.submit(stopped.folder.parent.parent), config())
    assert not caplog.records


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_a_record_that_ends_before_its_checkpoint_is_told_of_and_the_weights_are_the_same(
    stopped: RunPaths, lines: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    through = JOB.live(JOB.submit(tmp_path / "through"))
    texts = stopped.record.read_bytes().splitlines(keepends=True)
    stopped.record.write_bytes(b"".join(texts[:lines]) + texts[lines][:7])
    checkpoint = Checkpoints(stopped.checkpoints).newest_manifest()
    assert checkpoint is not None
    lost = unrecorded(read_history(stopped.record), checkpoint.steps)
    assert any(lost)
    require_standing(stopped, config(max_cost_usd=3.0))
    (told,) = [each.getMessage() for each in caplog.records]
    assert f"{stopped.record} ends before the checkpoint: {max(lost)} of" in told
    assert "cluster.max_cost_usd counts only what is recorded" in told
    assert JOB.live(stopped) == through
    history = read_history(stopped.record)
    assert (history.steps, history.unrecorded) == ([6, 6], sum(lost))
    assert status_of(stopped).state is State.DONE


def test_a_life_that_begins_ahead_of_its_record_without_saying_so_is_damage(stopped: RunPaths) -> None:
    header = next(iter(read_record(stopped.record)))
    assert isinstance(header, Header)
    ahead = replace(header, epoch=9, extra={DONE: [6, 6]})
    stopped.record.write_bytes(stopped.record.read_bytes() + encode_line(ahead) + b"\n")
    with refused(r"life 9 began after \[6, 6\] steps, but only .* restore the file, or move it away", FolderError):
        require_standing(stopped, config())


@pytest.mark.parametrize(
    "extra",
    [[], 7, None, {DONE: "ab"}, {DONE: [1]}, {DONE: [-1, 0]}, {DONE: 5}, {UNRECORDED: [1, 2, 3]}, {"steps": "many"}],
    ids=str,
)
def test_headers_of_the_wrong_kind(stopped: RunPaths, extra: Any) -> None:
    fields = json.loads(stopped.record.read_bytes().splitlines()[0])
    stopped.record.write_bytes(json.dumps({**fields, "extra": extra}).encode() + b"\n")
    with refused("restore the file, or move it away", FolderError):
        require_standing(stopped, config())
    assert status_of(stopped).state is State.DAMAGED


@pytest.mark.parametrize(
    "change",
    [
        {"models": 10**12},
        {"models": -1},
        {"models": "2"},
        {"steps": None},
        {"epoch": 1.5},
        {"names": ["a"]},
        {"names": ["\x1b[2J", "b"]},
        {"names": [1, 2]},
        {"run": ["x"]},
        {"kind": "other"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_headers_whose_numbers_and_names_are_none(stopped: RunPaths, change: dict[str, Any]) -> None:
    fields = json.loads(stopped.record.read_bytes().splitlines()[0])
    stopped.record.write_bytes(json.dumps({**fields, **change}).encode() + b"\n")
    with refused("restore the file, or move it away", FolderError):
        require_standing(stopped, config())


@pytest.mark.parametrize("change", [{"model": -1}, {"model": 99}, {"steps": 0}, {"steps": -3}, {"steps": "x"}], ids=str)
def test_gradients_that_cannot_be(stopped: RunPaths, change: dict[str, Any]) -> None:
    texts = stopped.record.read_bytes().splitlines()
    number = next(n for n, text in enumerate(texts) if json.loads(text).get("decoded"))
    fields = json.loads(texts[number])
    fields["decoded"][0] |= change
    stopped.record.write_bytes(b"\n".join([*texts[:number], json.dumps(fields).encode(), b""]))
    with refused("restore the file, or move it away", FolderError):
        require_standing(stopped, config())


def test_a_line_that_is_nested_without_end() -> None:
    with pytest.raises(GradmuxError, match="is not a line of a run's record"):
        decode_line("[" * 200_000)


def test_a_record_of_another_run_is_refused(stopped: RunPaths) -> None:
    lines = stopped.record.read_bytes().splitlines(keepends=True)
    for name, fits in ((store_name(stopped), True), ("another-0123", False), (5, False), (["x"], False)):
        fields = json.loads(lines[0])
        fields["extra"][RUN] = name
        stopped.record.write_bytes(json.dumps(fields).encode() + b"\n" + b"".join(lines[1:]))
        if fits:
            require_standing(stopped, config())
            continue
        with refused("is the record of another run", FolderError):
            require_standing(stopped, config())


# --- checkpoints -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_run_is_refused_under_whatever_name(stopped: RunPaths) -> None:
    last = Checkpoints(stopped.checkpoints).files()[-1]
    rewritten(last, lambda manifest: manifest.update(of="another-0123456789"))
    with refused(r"is a checkpoint of another run \('another-0123456789'\)", ConfigError):
        require_standing(stopped, config())
    with refused("is a checkpoint of another run", ConfigError):
        Checkpoints(stopped.checkpoints).newest(store_name(stopped))
    rewritten(last, lambda manifest: manifest.update(of=store_name(stopped)))
    require_standing(stopped, config())
    last.rename(last.with_name("000007-0000000007.zip"))
    with refused("under another name: give it back its own, or move it away", ConfigError):
        require_standing(stopped, config())


def test_a_checkpoint_says_whose_it_is(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, FAST)
    path = checkpoints.write(Manifest("r", 0, ("a",), (1,), of="r-01"), [ModelState(1, b"w", b"o")])
    assert read_checkpoint(path).manifest.of == "r-01"
    assert checkpoints.newest("r-01") == read_checkpoint(path)
    with refused("of another run", ConfigError):
        checkpoints.newest("r-02")


def test_checkpoints_of_former_versions_do_not_say_whose_they_are(stopped: RunPaths) -> None:
    def former(manifest: dict[str, Any]) -> None:
        del manifest["of"]
        manifest["version"] = 2

    for path in Checkpoints(stopped.checkpoints).files():
        rewritten(path, former)
    require_standing(stopped, config())


@pytest.mark.parametrize(
    "change",
    [
        {"steps": [-1, 4]},
        {"steps": [1.5, 4]},
        {"steps": [True, 4]},
        {"steps": [1]},
        {"steps": "ab"},
        {"steps": None},
        {"models": ["a", "a"]},
        {"models": [1, 2]},
        {"models": []},
        {"epoch": "0"},
        {"epoch": -1},
        {"of": 7},
        {"version": 0},
        {"version": "../.."},
        {"version": None},
        {"version": [1]},
        {"unknown": 1},
    ],
    ids=str,
)
def test_manifests_of_the_wrong_kind_and_the_one_before_is_taken(stopped: RunPaths, change: dict[str, Any]) -> None:
    before, last = Checkpoints(stopped.checkpoints).files()
    rewritten(last, lambda manifest: manifest.update(change))
    found = Checkpoints(stopped.checkpoints).newest_manifest()
    assert found is not None
    assert found.file_name == before.name
    rewritten(before, lambda manifest: manifest.update(change))
    with refused("no checkpoint in .* can be read: restore", ConfigError):
        require_standing(stopped, config())


@pytest.mark.parametrize("document", [[], 7, None, "x", [[]]], ids=str)
def test_manifests_that_are_no_tables(stopped: RunPaths, document: Any) -> None:
    for path in Checkpoints(stopped.checkpoints).files():
        rewritten(path, lambda _: [document])
    with refused("no checkpoint in .* can be read", ConfigError):
        Checkpoints(stopped.checkpoints).newest()


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, b" " * 50_000_000)


def twice(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(MANIFEST, b"{}")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"not a zip"),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-30]),
    "a zip bomb": bomb,
    "a member twice": twice,
    "a nested manifest": lambda path: rewritten(path, lambda _: None, **{MANIFEST: b"[" * 100_000}),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path.name)),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_to_all_checkpoints_never_means_to_train_anew_unasked(stopped: RunPaths, kind: str) -> None:
    for path in Checkpoints(stopped.checkpoints).files():
        DAMAGES[kind](path)
    with refused("no checkpoint in .* can be read: restore", ConfigError):
        require_standing(stopped, config())
    with refused("no checkpoint in .* can be read: restore", ConfigError):
        Checkpoints(stopped.checkpoints).newest()


def test_checkpoints_that_are_gone_are_told_of(stopped: RunPaths, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Interrupted):
        JOB.live(stopped, stop=asked())
    for path in Checkpoints(stopped.checkpoints).files():
        path.unlink()
    require_standing(stopped, config())
    assert "holds no checkpoint any more" in caplog.records[-1].getMessage()


def asked() -> Stop:
    stop = Stop(look_s=0.0)
    stop.ask("at once")
    return stop


# --- the job -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2])
def test_fewer_steps_than_are_done(stopped: RunPaths, steps: int) -> None:
    made = Checkpoints(stopped.checkpoints).newest_manifest()
    assert made is not None
    least = max(made.steps)
    if least <= steps:
        pytest.skip("it had not come so far")
    with refused(rf"training\.steps = {steps}, but model .* set it to {least} or more", ConfigError):
        require_standing(stopped, config(steps=steps))
    require_standing(stopped, config(steps=least))


@pytest.mark.parametrize(
    "models",
    [["model-1", "model-0"], ["model-0"], ["model-0", "other"], [f"m{number}" for number in range(500)]],
    ids=len,
)
def test_other_models(stopped: RunPaths, models: list[str]) -> None:
    with refused("the checkpoint is of the models model-0, model-1, the job has", ConfigError):
        require_standing(stopped, config(models=models))


# --- what lies in the folder -----------------------------------------------------------------------------------------

FILES = [
    "store-name",
    "brought-from",
    "lock",
    "life.json",
    "record.jsonl",
    "cancel.json",
    "log.txt",
    "result.json",
    "last-words.json",
]
FOLDERS = ["materials", "checkpoints", "failed", "weights"]


def emptied(path: Path) -> Path:
    if path.is_dir():
        for each in path.iterdir():
            each.unlink()
        path.rmdir()
    path.unlink(missing_ok=True)
    return path


def bound(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # its name must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


OTHERS: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to("nowhere"),
    "a pipe": os.mkfifo,
    "a socket": bound,
}


@pytest.mark.parametrize("kind", ["a folder", *OTHERS])
@pytest.mark.parametrize("name", FILES)
def test_files_that_are_none(stopped: RunPaths, name: str, kind: str) -> None:
    path = emptied(stopped.folder / name)
    OTHERS.get(kind, Path.mkdir)(path)
    with refused(f"{name} must be a file, but is {kind}", ConfigError):
        find_again(stopped.run, stopped.folder.parent.parent)
    (status,) = statuses(stopped.folder.parent.parent)
    assert (status.state, status.reason) == (State.DAMAGED, status_of(stopped).reason)
    assert f"{name} must be a file" in status.reason


@pytest.mark.parametrize("kind", ["a file", *OTHERS])
@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_are_none(stopped: RunPaths, name: str, kind: str) -> None:
    path = emptied(stopped.folder / name)
    OTHERS.get(kind, Path.touch)(path)
    with refused(f"{name} must be a folder, but is {kind}", ConfigError):
        find_again(stopped.run, stopped.folder.parent.parent)
    if name == "checkpoints" and kind != "a socket":
        with refused("checkpoints", ConfigError):
            Checkpoints(path).newest()


def test_a_link_to_a_file_is_not_written_through_and_one_to_a_folder_may_be(stopped: RunPaths, tmp_path: Path) -> None:
    elsewhere = tmp_path / "large-disk"
    stopped.checkpoints.rename(elsewhere)
    stopped.checkpoints.symlink_to(elsewhere)
    require_layout(stopped)
    require_standing(stopped, config())
    precious = tmp_path / "precious"
    precious.write_text("no newline at its end, which a record would cut off")
    emptied(stopped.log).symlink_to(precious)
    with refused(r"log\.txt must be a file, but is a link", ConfigError):
        require_layout(stopped)
    emptied(stopped.lock).symlink_to("lock")
    assert statuses(stopped.folder.parent.parent)[0].state is State.DAMAGED


@pytest.mark.parametrize("name", ["x" * 300, "a/" + "ü" * 200, "nul\0", "..", "", "../..", "no-such-1"], ids=ascii)
def test_runs_that_are_none(stopped: RunPaths, name: str) -> None:
    with refused("there is no run|holds no job.json", ConfigError):
        find_run(stopped.folder.parent.parent, name)


# --- functions and rows ----------------------------------------------------------------------------------------------


@pytest.fixture
def held(tmp_path: Path) -> RunPaths:
    """A folder with rows and a function by its name."""
    paths = RunPaths(tmp_path / "runs" / "small-1")
    rows = Dataset(np.zeros((4, 2), np.float32), np.zeros(4, np.int64))
    keep(paths, {"loss": "torch.nn.functional:mse_loss"}, {"train": rows}, ["train"], FAST)
    (tmp_path / "index.json").write_bytes((paths.materials / "train" / "index.json").read_bytes())
    return paths


@pytest.mark.parametrize(
    "change",
    [
        {"copied": ["../../.."]},
        {"copied": ["/"]},
        {"copied": ["train\0"]},
        {"copied": [["train"]]},
        {"copied": "train"},
        {"copied": None},
        {"code": {"loss": {"kind": "shell", "code": "true"}}},
        {"code": {"loss": "x"}},
        {"code": []},
        {"rows": ["train"]},
    ],
    ids=str,
)
def test_materials_of_the_wrong_kind(held: RunPaths, change: dict[str, Any]) -> None:
    file = held.materials / "materials.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **change}))
    with refused("cannot be read: restore the file", FolderError):
        kept(held)


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b'{"code": '], ids=len)
def test_materials_that_are_none(held: RunPaths, content: bytes) -> None:
    (held.materials / "materials.json").write_bytes(content)
    with refused("cannot be read: restore the file", FolderError):
        kept(held)


@pytest.mark.parametrize(
    "change",
    [
        {"shards": ["../../../../secret"]},
        {"shards": ["/etc/hostname"]},
        {"shards": ["a" * 64 + "\n"]},
        {"shards": ["A" * 64]},
        {"shards": ["٣" * 64]},
        {"shards": [5]},
        {"rows": 2**32, "shard_rows": 2**32},
        {"rows": -1},
        {"rows": True},
        {"arrays": []},
    ],
    ids=str,
)
def test_indexes_of_the_wrong_kind(held: RunPaths, change: dict[str, Any]) -> None:
    """None makes a name of another place out of itself, or takes memory for rows that are not there."""
    file = held.materials / "train" / "index.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **change}))
    with refused("restore the file, or submit the job again", FolderError):
        kept(held)
