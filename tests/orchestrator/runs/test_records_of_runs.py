"""What is read out of a run's folder: history, cost, prices, checkpoints, materials, where a life begins."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gradmux.orchestrator.backends import Billed, PlaceNote
from gradmux.orchestrator.config import ClusterConfig
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import ModelState
from gradmux.orchestrator.prices import PRICES, load_prices
from gradmux.orchestrator.record import (
    Beside,
    Decoded,
    EndLine,
    Header,
    Heard,
    Line,
    MemoryRecord,
    RecordError,
    RoundLine,
    Sent,
)
from gradmux.orchestrator.runs.checkpoints import Checkpoints, Manifest, saved_steps
from gradmux.orchestrator.runs.cost import cost_of
from gradmux.orchestrator.runs.failed import load_failed, save_failed
from gradmux.orchestrator.runs.history import DONE, Follower, History, read_history
from gradmux.orchestrator.runs.index import opened_index
from gradmux.orchestrator.runs.keeper import Keeper
from gradmux.orchestrator.runs.life import FolderError, living, settle, store_name
from gradmux.orchestrator.runs.materials import keep, kept
from gradmux.orchestrator.runs.paths import RunPaths, find_run
from gradmux.orchestrator.runs.tariff import Tariff, tariff_of
from gradmux.orchestrator.start import start_after
from gradmux.orchestrator.training.data import Dataset
from tests.orchestrator.runs.bench import SmallJob
from tests.orchestrator.runs.disks import FAST_DISK


def header(epoch: int, done: list[int], first: int = 0) -> Header:
    return Header(
        "r", "gc", {}, 2, len(done), 3, 0, {}, {}, first=first, epoch=epoch, names=("a", "b"), extra={DONE: done}
    )


def decoded(model: int, step: int, at_s: float = 1.0) -> Decoded:
    return Decoded(0, model, step, at_s, 2, 0, 1e-9, 1.0, 0.0, 0.5 - 0.1 * step, 4, 2, 1.0)


def heard(round: int, worker: int, billed_s: float, slots: tuple[int, ...] = (0,)) -> Heard:
    return Heard(1.0, round, worker, 1, "ok" if slots else "crashed", slots, (), True, billed_s, billed_s, False, "")


def line(round: int, steps: list[Decoded], arrivals: tuple[Heard, ...] = ()) -> RoundLine:
    sent = (Sent(0.25, round, 1, (0, 1), (0.5, 0.5)),)
    return RoundLine(round, 0.25, 1.0, 0.5, (), False, 0, sent, arrivals, tuple(steps))


# --- history -----------------------------------------------------------------------------------------------------

LIVES = [
    header(0, [0, 0]),
    line(0, [decoded(0, 0)], (heard(0, 0, 2.0), heard(0, 1, 0.5, ()))),
    line(1, [decoded(1, 0)], (heard(1, 0, 1.0), heard(0, 1, 0.0))),
    header(1, [1, 0], first=1),
    line(0, [decoded(1, 0, 4.0)], (heard(0, 0, 1.0),)),
    EndLine("stopped", 5.0, "Interrupted: interrupted", (heard(0, 1, 3.0),)),
]


def history_of(lines: Iterable[Line]) -> History:
    """What the lines tell together."""
    history = History()
    for line in lines:
        history.take(line)
    return history


def test_each_gradient_counts_once_and_each_bill_counts() -> None:
    history = history_of(LIVES)
    assert (history.lives, history.rounds, history.steps, history.redone) == (2, 3, [1, 1], 1)
    assert (history.invocations, history.returned, history.failed) == (6, 6, 1)
    assert history.billed_s == 7.5
    assert history.in_flight == 0
    assert history.wall_s == pytest.approx(0.75 + 3.75)
    assert history.losses == [0.5, 0.5]
    assert history.end is not None
    assert history.end.state == "stopped"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([header(0, [0, 0]), line(0, [decoded(0, 0), decoded(0, 0)])], "step 0 of model 0 was applied twice"),
        ([header(0, [0, 0]), line(0, [decoded(0, 1)])], "step 1 of model 0 came when 0 were done"),
        ([header(0, [0, 0]), header(1, [1, 0])], r"life 1 began after \[1, 0\] steps, but only \[0, 0\] are recorded"),
    ],
)
def test_a_gradient_that_is_lost_or_counted_twice_is_found(lines: list[Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        history_of(lines)


def test_a_follower_takes_what_is_new_and_no_half_lines(tmp_path: Path) -> None:
    job = SmallJob()
    paths = job.submit(tmp_path)
    job.live(paths)
    whole, growing = paths.record.read_bytes(), RunPaths(tmp_path / "other")
    growing.folder.mkdir()
    follower = Follower(growing.record)
    assert follower.read().header is None
    for end in range(0, len(whole), 997):
        growing.record.write_bytes(whole[:end])
        follower.read()
    growing.record.write_bytes(whole)
    assert follower.read() == read_history(paths.record)
    assert follower.history.steps == [5, 5]


# --- cost --------------------------------------------------------------------------------------------------------


def test_the_bill_by_life_model_and_round() -> None:
    cost = cost_of(LIVES, memory_mb=2048)
    assert (cost.total.invocations, cost.total.returned, cost.total.billed_s) == (6, 6, 7.5)
    assert [bill.billed_s for bill in cost.lives] == [3.5, 4.0]
    assert cost.total.failed_s == 0.5
    assert cost.total.late_s == 0.0 + 3.0
    assert cost.models == {"a": 2.5, "b": 5.0}
    assert cost.rounds[0, 0].billed_s == 2.5
    assert cost.total.usd(PRICES, 2048) == pytest.approx(7.5 * 2 * 0.0000166667 + 6 * 0.2e-6)
    assert (cost.total.beside, cost.total.beside_s) == (0, 0.0)
    told = cost.to_dict(PRICES)
    assert sum(life["usd"] for life in told["lives"]) == pytest.approx(told["total"]["usd"])


def test_calls_beside_the_rounds_are_billed_apart() -> None:
    first, second = structs.replace(LIVES[1], beside=Beside(2, 4.0)), structs.replace(LIVES[-1], beside=Beside(3, 0.5))
    lines = [LIVES[0], first, *LIVES[2:-1], second]
    cost = cost_of(lines, memory_mb=2048)
    assert (cost.total.invocations, cost.total.billed_s) == (6, 7.5)
    assert [(bill.beside, bill.beside_s) for bill in (cost.total, *cost.lives)] == [(5, 4.5), (2, 4.0), (3, 0.5)]
    assert cost.total.usd(PRICES, 2048) == pytest.approx(12.0 * 2 * 0.0000166667 + 11 * 0.2e-6)
    history = history_of(lines)
    assert (history.invocations, history.billed_s, history.beside) == (6, 7.5, Beside(5, 4.5))


def test_prices_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    assert load_prices(path) is PRICES
    path.write_text('date = "2027-01"\ngb_s = 0.0000133334\n')
    assert load_prices(path) == replace(PRICES, date="2027-01", gb_s=0.0000133334)
    for text, message in (
        ("gb_s = -1", "gb_s must be a number, not negative"),
        ('gb_s = "1"', "gb_s must be a number"),
        ("gbs = 1", "'gbs' is no price; there are date, gb_s"),
        ("gb_s = ", "is no table of prices"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_prices(path)


def test_a_run_is_billed_by_its_function(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "runs" / "one")
    paths.folder.mkdir(parents=True)
    assert tariff_of(paths, ClusterConfig()) == Tariff(PRICES, 2048)
    with living(paths) as life:
        settle(paths, life, PlaceNote("aws"))
        assert tariff_of(paths, ClusterConfig()) == Tariff(PRICES, 2048), "its memory is not known"
        settle(paths, life, PlaceNote("aws", billed=Billed(3008, arm=True)))
    (tmp_path / "prices.toml").write_text("arm_gb_s = 0.5")
    assert tariff_of(paths, ClusterConfig()) == Tariff(replace(PRICES, gb_s=0.5, arm_gb_s=0.5), 3008)


# --- where a life begins -----------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 8), st.data())
def test_a_life_has_to_do_what_is_not_done_and_nothing_else(models: int, steps: int, data: st.DataObject) -> None:
    done = data.draw(st.lists(st.integers(0, steps), min_size=models, max_size=models))
    start = start_after(done, steps)
    left = [job for job in range(start.plan.jobs) if job not in start.already]
    places = {(start.plan.model(job), start.plan.step(job)) for job in left}
    assert places == {(m, s) for m in range(models) for s in range(done[m], steps)}
    assert start.finished == (not left)
    for job in left:
        before = start.plan.predecessor(job)
        assert (before is None or before in start.already) == (start.plan.step(job) == done[start.plan.model(job)])


# --- checkpoints -------------------------------------------------------------------------------------------------


class Saved:
    """Models whose state says how often it was asked for."""

    def __init__(self, steps: list[int]) -> None:
        self.steps = steps

    def state(self, model: int) -> ModelState:
        return ModelState(self.steps[model], f"w{model}".encode(), b"o")

    def load_state(self, model: int, state: ModelState) -> None:
        raise NotImplementedError


def test_the_keeper_saves_when_all_models_have_done_so_many_steps_and_never_ahead_of_the_record(tmp_path: Path) -> None:
    record, models = MemoryRecord(), Saved([0, 0])
    lines_at_save = []
    checkpoints = Checkpoints(tmp_path, FAST_DISK)
    keeper = Keeper(
        record,
        checkpoints,
        models,
        Manifest("r", 3, ("a", "b"), (0, 0)),
        every=2,
        saved=lambda: lines_at_save.append(len(record.lines)),
    )
    keeper.write(header(3, [0, 0]))
    for step in range(3):
        for model in range(2):
            models.steps[model] += 1
            keeper.write(line(0, [decoded(model, step)]))
    assert lines_at_save == [5]
    keeper.save()
    keeper.save()
    assert lines_at_save == [5, 7], "nothing new, nothing saved"
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.manifest == Manifest("r", 3, ("a", "b"), (3, 3))
    assert [path.name for path in checkpoints.files()] == ["000003-0000000004.zip", "000003-0000000006.zip"]


def test_two_checkpoints_are_kept_and_a_later_life_is_newer(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, FAST_DISK)
    for epoch, steps in ((0, 5), (0, 9), (1, 7), (1, 8)):
        checkpoints.write(Manifest("r", epoch, ("a",), (steps,)), [ModelState(steps, b"w", b"o")])
    assert [path.name for path in checkpoints.files()] == ["000001-0000000007.zip", "000001-0000000008.zip"]
    newest = checkpoints.newest_manifest()
    assert saved_steps(newest, ("a",)) == (8,)
    assert saved_steps(None, ("a", "b")) == (0, 0)
    with pytest.raises(ConfigError, match="the checkpoint is of the models a, the job has b"):
        saved_steps(newest, ("b",))


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, FAST_DISK)
    checkpoints.write(Manifest("r", 0, ("a",), (1,), version=4), [ModelState(1, b"w", b"o")])
    with pytest.raises(ConfigError, match="has version 4, this gradmux reads 1 to 3: upgrade it"):
        checkpoints.newest()


# --- materials and failed tasks ----------------------------------------------------------------------------------


def rows(dtype: str = "float32") -> Dataset:
    x = np.arange(24, dtype=dtype).reshape(6, 2, 2)[:, :, ::-1]
    return Dataset(x, np.array([0, 1, 0, 1, 1, 0]))


def test_functions_and_rows_come_back_as_they_were(tmp_path: Path) -> None:
    import cloudpickle

    paths, base = RunPaths(tmp_path), 3
    code = {"model m": cloudpickle.dumps(lambda n: n + base), "loss": "torch.nn.functional:mse_loss"}
    keep(paths, code, {"train": rows(), "eval": rows("float64")}, ["train"], FAST_DISK)
    found = kept(paths)
    double: Any = found.code["model m"]
    assert double(4) == 7
    assert found.code["loss"] == "torch.nn.functional:mse_loss"
    np.testing.assert_array_equal(found.rows["train"].x, rows().x)
    assert found.rows.keys() == {"train"}
    found.check("train", rows())
    found.check("eval", rows("float64"))
    with pytest.raises(ConfigError, match="the eval rows are not those that the run began with"):
        found.check("eval", rows())
    assert rows().digest != rows("float64").digest


def test_rows_that_an_older_version_kept_are_read(tmp_path: Path) -> None:
    """Version 0.1.0 wrote x and y as .npy files, and made its digest of them."""
    paths = RunPaths(tmp_path)
    keep(paths, {}, {"train": rows()}, [], FAST_DISK)
    for name, array in (("x", rows().x), ("y", rows().y)):
        np.save(paths.materials / f"train.{name}.npy", array)
    told = [f"{each.dtype.str} {each.shape} {sha256(each.tobytes()).hexdigest()}" for each in (rows().x, rows().y)]
    described = json.loads((paths.materials / "materials.json").read_bytes())
    described |= {"copied": ["train"], "rows": {"train": sha256("\n".join(told).encode()).hexdigest()}}
    (paths.materials / "materials.json").write_text(json.dumps(described))
    found = kept(paths)
    np.testing.assert_array_equal(found.rows["train"].x, rows().x)
    found.check("train", rows())
    with pytest.raises(ConfigError, match="not those that the run began with"):
        found.check("train", rows("float64"))
    (paths.materials / "train.x.npy").write_bytes(b"")
    with pytest.raises(FolderError, match=r"train\.x\.npy cannot be read"):
        kept(paths)


def test_a_pickle_that_cannot_be_loaded_here_is_one_line(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    keep(paths, {"loss": b"cnowhere_at_all\nloss\n."}, {"train": rows()}, [], FAST_DISK)
    with pytest.raises(ConfigError, match="loss cannot be loaded here: ModuleNotFoundError: No module named 'nowhere"):
        kept(paths)


@pytest.mark.parametrize("left", [None, 0, 40, 150])
@pytest.mark.parametrize("name", ["train/index.json", "eval/shards/*", "materials.json"])
def test_a_file_of_rows_that_is_cut_short_or_gone_is_named(tmp_path: Path, name: str, left: int | None) -> None:
    paths = RunPaths(tmp_path)
    keep(paths, {}, {"train": rows(), "eval": rows()}, ["train", "eval"], FAST_DISK)
    (file,) = paths.materials.glob(name)
    file.unlink() if left is None else file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(FolderError, match=rf"{file.name}.*restore the file, or submit the job"):
        kept(paths)


@pytest.mark.parametrize("content", [b"", b"\n", b"small-\xb1", b"small-1/../other", b"\0" * 16])
def test_a_damaged_store_name_is_named(tmp_path: Path, content: bytes) -> None:
    paths = RunPaths(tmp_path)
    paths.store_name.write_bytes(content)
    with pytest.raises(FolderError, match=re.escape(f"{paths.store_name} cannot be read: restore the file")):
        store_name(paths)


def test_failed_tasks_by_name_or_the_newest(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    with pytest.raises(ConfigError, match="there is nothing to replay"):
        load_failed(paths)
    for name in ("life0-round1-worker2", "life1-round0-worker0"):
        save_failed(paths, name, name.encode(), [("specs/a.json", b"{}"), ("runs/r/weights/0/1/2", b"w")], FAST_DISK)
    assert load_failed(paths).request == b"life1-round0-worker0"
    assert load_failed(paths, "life0-round1-worker2").objects["runs/r/weights/0/1/2"] == b"w"
    with pytest.raises(ConfigError, match="has no failed task 'x'; it has life0-round1-worker2, life1"):
        load_failed(paths, "x")
    (paths.failed / "life1-round0-worker0.zip").write_bytes(b"PK nothing")
    with pytest.raises(FolderError, match="cannot be read"):
        load_failed(paths, "life1-round0-worker0")


# --- names and the index -----------------------------------------------------------------------------------------


def test_runs_are_found_by_name_or_folder_and_named_in_order(tmp_path: Path) -> None:
    runs = [SmallJob().submit(tmp_path) for _ in range(11)]
    assert [paths.run for paths in runs] == [f"small-{number}" for number in range(1, 12)]
    assert find_run(tmp_path, "small-3") == find_run(tmp_path, str(runs[2].folder)) == runs[2]
    for name in ("small-12", "", "..", "runs"):
        with pytest.raises(ConfigError, match="the last ones are small-9, small-10, small-11"):
            find_run(tmp_path, name)


def test_an_index_is_brought_from_any_version_to_the_newest(tmp_path: Path) -> None:
    create = "CREATE TABLE runs (run TEXT PRIMARY KEY, signature TEXT NOT NULL, status TEXT NOT NULL) STRICT"
    steps = [create, "ALTER TABLE runs ADD COLUMN note TEXT", "UPDATE runs SET note = 'seen'"]
    for known in range(1, 4):
        path = tmp_path / f"{known}.db"
        with opened_index(path, steps[:known]) as index:
            index.execute("INSERT INTO runs (run, signature, status) VALUES ('a', 's', '{}')")
        with opened_index(path, steps) as index:
            assert index.execute("PRAGMA user_version").fetchone() == (3,)
            assert index.execute("SELECT run, note FROM runs").fetchall() == [("a", "seen" if known < 3 else None)]
