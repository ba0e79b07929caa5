"""Runs that are stopped and resumed, over real workers: the weights are those of a run that went through."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gradmux.infra.local import DelayPlan, Emulator
from gradmux.infra.local.backend import emulator_errors, local_place, start_emulator
from gradmux.lambda_worker.contract import cancelled_epoch
from gradmux.orchestrator.errors import DeadlinePassed, Diverged, Interrupted, RunStopped, TaskFailed
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.record import Header, RoundLine, read_record
from gradmux.orchestrator.runs.history import read_history
from gradmux.orchestrator.runs.keep import prepare_again, read_job, set_limits
from gradmux.orchestrator.runs.life import FolderError, store_name
from gradmux.orchestrator.runs.materials import FILE
from gradmux.orchestrator.runs.status import State, status_of
from gradmux.orchestrator.store import Keys
from tests.cli.conftest import Gradmux
from tests.cli.going_on import MODELS, STEPS, WORKERS, Network, Small, flat, hurt, model, saved

TREE = {
    "cluster": {"workers": WORKERS, "timeout_s": 5.0, "concurrency": 30},
    "scheme": {"name": "uncoded"},
    "data": {"train": "arrays", "batch_size": 1},
    "training": {"steps": 1},
    "models": [model("any")],
    "emulator": {"delays": "lambda-like", "time_scale": 0.01},
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Emulator]:
    with emulator_errors(), start_emulator(parse_job(TREE, "test")) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def place(shared: Emulator) -> Any:
    return local_place(shared)


@pytest.fixture
def emulator(shared: Emulator) -> Iterator[Emulator]:
    yield shared
    shared.set_delays(shared.config.delays)


@pytest.fixture
def small(home: Path, place: Any) -> Small:
    return Small(home, place)


FRACTIONAL: list[dict[str, Any]] = [
    {"name": "uncoded"},
    {"name": "gc", "s": 1},
    {"name": "sr-sgc", "B": 1, "W": 2, "lambda": 3},
    {"name": "m-sgc", "B": 1, "W": 2, "lambda": 2},
    {"name": "pipeline", "n": 4, "s": 1},
]


@pytest.mark.parametrize("scheme", FRACTIONAL, ids=str)
def test_a_resumed_run_ends_with_the_bits_of_one_that_went_through(small: Small, scheme: dict[str, Any]) -> None:
    job = small.prepared(scheme)
    through, stopped = small.submit(job), small.submit(job)
    small.run(through)
    for stop_after in (3, 2):
        with pytest.raises(Interrupted):
            small.run(stopped, stop_after)
        assert status_of(stopped).state is State.STOPPED
    small.run(stopped)
    assert saved(stopped) == saved(through)
    history = read_history(stopped.record)
    assert (history.steps, history.lives) == ([STEPS] * 2, 3)
    epochs = [line.epoch for line in read_record(stopped.record) if isinstance(line, Header)]
    assert epochs == [0, 1, 2]


def test_under_a_code_that_decodes_in_the_order_of_arrival_the_weights_agree_to_rounding(small: Small) -> None:
    """Without a bias in front of a norm: its gradient is nothing but rounding, which Adam divides by its own size."""
    models = [model("plain", args={"dropout": 0.3}, scheduler={"name": "StepLR", "step_size": 2}), MODELS[1]]
    job = small.prepared({"name": "gc", "s": 1, "code": "cyclic"}, models, training={"dtype": "float64"})
    through, stopped = small.submit(job), small.submit(job)
    expected = flat(small.run(through))
    with pytest.raises(Interrupted):
        small.run(stopped, 3)
    got = flat(small.run(stopped))
    assert float((got - expected).norm() / expected.norm()) < 1e-12


def test_a_run_that_chooses_by_itself_goes_on_by_itself(small: Small, emulator: Emulator) -> None:
    """It may choose otherwise after its second start, so the weights agree to the rounding of other groups."""
    emulator.set_delays(DelayPlan.of(0.02 + 0.2 * (np.random.default_rng(5).random((50, WORKERS)) < 0.12)))
    models = [model(name, optimizer={"name": "SGD", "lr": 0.05}) for name in "ab"]
    job = small.prepared({"name": "auto"}, models, training={"steps": 24})
    expected = flat(small.run(small.submit(job)))
    for stop_after in (3, 17, 33):
        stopped = small.submit(job)
        with pytest.raises(Interrupted):
            small.run(stopped, stop_after)
        got = flat(small.run(stopped))
        assert float((got - expected).norm() / expected.norm()) < 1e-5, stop_after
        history = read_history(stopped.record)
        assert (history.steps, history.lives) == ([24] * 2, 2)
        assert status_of(stopped).state is State.DONE


def test_a_run_that_ends_early_leaves_no_snapshots_behind(small: Small, place: Any) -> None:
    """It has had some: the next life is shown to begin without them, and ends with the same bits."""
    job = small.prepared({"name": "gc", "s": 1})
    through, stopped = small.submit(job), small.submit(job)
    small.run(through)
    keys, seen = Keys(store_name(stopped)), list[str]()
    store = place.store()
    foreign = keys.weights(5, 0, 0, b"w")
    store.put(foreign, b"of a later life, on another machine")
    with pytest.raises(Interrupted):
        small.run(stopped, 3, at_first_step=lambda: seen.extend(store.list(keys.snapshots)))
    assert {keys.life_of(key) for key in seen} == {0, 5}
    assert store.list(keys.snapshots) == [foreign]
    small.run(stopped)
    assert store.list(keys.snapshots) == []
    store.close()
    assert saved(stopped) == saved(through)


def test_a_stopped_run_tells_its_workers_and_leaves_nothing_in_the_store_when_done(small: Small, place: Any) -> None:
    paths = small.submit(small.prepared({"name": "gc", "s": 1}))
    with pytest.raises(Interrupted):
        small.run(paths, 3)
    store, keys = place.store(), Keys(store_name(paths))
    assert cancelled_epoch(store.get(keys.cancel)) == 0
    small.run(paths)
    left = [key for key in store.list(keys.prefix) if key != keys.cancel]
    store.close()
    assert left == []


def test_everything_at_once_goes_wrong_and_the_bits_are_the_same(small: Small, emulator: Emulator) -> None:
    job = small.prepared({"name": "gc", "s": 1})
    calm, troubled = small.submit(job), small.submit(job)
    small.run(calm)
    kinds = ("crash", "oom", "error", "init", "throttle", "_500", "_503", "expired", "truncate", "corrupt", "stale")
    with hurt(emulator, **dict.fromkeys(kinds, 0.03), slowdown=0.15, lost=0.1):
        before = emulator.statistics()["faults"]
        small.run(troubled)
        after = emulator.statistics()["faults"]
    happened = {kind for kind in after if after[kind] > before.get(kind, 0)}
    assert len(happened) >= 6
    assert saved(troubled) == saved(calm)
    assert read_history(troubled.record).failed > 0


# --- troubles that end a run -------------------------------------------------------------------------------------


def test_a_task_that_always_fails_names_its_model_and_step_and_can_be_replayed(
    small: Small, gradmux: Gradmux, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = small.prepared({"name": "gc", "s": 1}, [model("good"), model("bad", "fussy")], cluster={"attempts": 2})
    paths = small.submit(job)
    with pytest.raises(TaskFailed, match=r"model 'bad', step 0 failed \(round 1, worker \d, 2 attempts") as caught:
        small.run(paths)
    told = str(caught.value)
    assert caught.value.exit_code == 5
    assert told.count("ValueError: fussy about (6,)") == 1
    assert "in forward" in told
    assert f"gradmux replay-task {paths.run}" in told

    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "as in a worker")  # by which this model goes
    ran = gradmux("replay-task", paths.run)
    assert ran.code == 1
    assert "job 1, slot 0: failed ValueError: fussy about (6,)" in ran.out
    assert "Traceback (most recent call last):" in ran.out
    document = gradmux("replay-task", paths.run, "--json").document
    assert document["task"].startswith("life0-round1-worker")
    assert [result["status"] for result in document["results"]] == ["failed"]


def test_a_task_that_failed_elsewhere_works_here(small: Small, gradmux: Gradmux, emulator: Emulator) -> None:
    paths = small.submit(small.prepared({"name": "uncoded"}, [model("wide", "wide")], cluster={"attempts": 2}))
    with hurt(emulator, crash=1.0), pytest.raises(TaskFailed, match="model 'wide', step 0"):
        small.run(paths)
    assert status_of(paths).state is State.STOPPED
    ran = gradmux("replay-task", paths.run)
    assert ran.code == 0, ran.out
    assert ran.out.strip().endswith("ok")
    small.run(paths)
    assert status_of(paths).state is State.DONE


def test_a_model_that_diverges_is_named_with_what_helps_and_the_others_are_kept(small: Small) -> None:
    wild = model("wild", optimizer={"name": "SGD", "lr": 1e38})
    paths = small.submit(small.prepared({"name": "gc", "s": 1}, [model("good"), wild], cluster={"attempts": 2}))
    with pytest.raises(Diverged, match=r"model 'wild', step ([12]) has diverged: .*NonFiniteResult") as caught:
        small.run(paths)
    told = str(caught.value)
    assert "\n" not in told
    assert "(2 attempts; `gradmux replay-task small-1` runs it here)" in told
    assert "lower its optimizer's lr (now 1e+38) or set training.clip_norm, then submit again" in told
    assert f"weights of the others are in {paths.weights('').parent} (good after " in told
    assert list(saved(paths)) == ["good"]
    assert status_of(paths).state is State.STOPPED


def test_expired_credentials_are_waited_for(small: Small, emulator: Emulator) -> None:
    paths = small.submit(small.prepared({"name": "uncoded"}, [model("plain")]))
    began = time.monotonic()
    with hurt(emulator, expired=1.0):
        timer = threading.Timer(1.5, emulator.set_faults, [type(emulator.config.faults)()])
        timer.start()
        small.run(paths)
        timer.join()
    assert time.monotonic() - began > 1.5
    assert read_history(paths.record).failed == 0, "no call has failed: each was repeated until it was let in"


def test_credentials_that_stay_expired_stop_the_run_resumably(small: Small, emulator: Emulator) -> None:
    job = small.prepared({"name": "uncoded"}, [model("plain")], cluster={"attempts": 1, "patience_s": 0.5})
    paths = small.submit(job)
    with hurt(emulator, expired=1.0), pytest.raises(RunStopped, match="ExpiredTokenException") as caught:
        small.run(paths)
    assert caught.value.exit_code == 5
    small.run(paths)
    assert status_of(paths).state is State.DONE


def test_a_network_that_is_gone_for_a_while_is_waited_for(small: Small, place: Any) -> None:
    job = small.prepared({"name": "gc", "s": 1}, [model("plain"), model("wide", "wide")])
    calm, troubled = small.submit(job), small.submit(job)
    small.run(calm)
    ways = [Network(place.lambda_url), Network(place.s3_url)]

    def outage() -> None:
        for way in ways:
            way.cut()
        time.sleep(2.0)
        for way in ways:
            way.mend()

    thread = threading.Thread(target=outage)
    reached = replace(place, lambda_url=ways[0].url, s3_url=ways[1].url)
    small.run(troubled, place=reached, at_first_step=thread.start)
    thread.join()
    for way in ways:
        way.cut()
    assert saved(troubled) == saved(calm)
    assert read_history(troubled.record).wall_s > 2.0


def test_a_deadline_stops_resumably_or_goes_on_with_what_there_is(small: Small, emulator: Emulator) -> None:
    slow = [[2.0] + [0.0] * (WORKERS - 1)]
    emulator.set_delays(DelayPlan.of(slow))
    scheme = {"name": "uncoded", "deadline_s": 0.5}
    cluster = {"attempts": 1}
    job = small.prepared(scheme, [model("plain")], cluster=cluster)
    paths = small.submit(job)
    longer = r"`gradmux resume small-1 --deadline-s S` .* approximate = true"
    with pytest.raises(DeadlinePassed, match=longer) as caught:
        small.run(paths)
    assert caught.value.exit_code == 5
    set_limits(paths, deadline_s=60.0)
    assert (read_job(paths).scheme.deadline_s, read_job(paths).cluster) == (60.0, job.config.cluster)
    going_on = small.submit(
        small.prepared({**scheme, "approximate": True}, [model("plain")], cluster=cluster, training={"steps": 1})
    )
    small.run(going_on)
    (missing,) = (
        each.missing for line in read_record(going_on.record) if isinstance(line, RoundLine) for each in line.decoded
    )
    assert 1 / WORKERS - 0.02 <= missing < 1, "the slow one's part, on a busy machine more"
    emulator.set_delays(DelayPlan())
    small.run(paths)
    assert status_of(paths).state is State.DONE


def test_the_resumed_run_needs_nothing_but_its_folder(small: Small, tmp_path: Path) -> None:
    """Not the working directory, not the name of the folder's parent."""
    job = small.prepared({"name": "gc", "s": 1})
    through, stopped = small.submit(job), small.submit(job)
    small.run(through)
    with pytest.raises(Interrupted):
        small.run(stopped, 3)
    moved = tmp_path / "elsewhere" / stopped.run
    moved.parent.mkdir()
    stopped.folder.rename(moved)
    here = Path.cwd()
    os.chdir("/")
    try:
        small.run(type(stopped)(moved))
    finally:
        os.chdir(here)
    assert saved(type(stopped)(moved)) == saved(through)
    with torch.no_grad():
        assert re.fullmatch(r"small-\d+", stopped.run)


def test_a_run_from_when_seeds_went_by_place_says_that_its_random_numbers_change(
    small: Small, caplog: pytest.LogCaptureFixture
) -> None:
    paths = small.submit(small.prepared({"name": "gc", "s": 1}))
    prepare_again(paths)
    assert "seeded by a model's place" not in caplog.text
    file = paths.materials / FILE
    fields = json.loads(file.read_bytes())
    del fields["seeds"]  # as versions before wrote it
    file.write_text(json.dumps(fields))
    prepare_again(paths)
    assert caplog.text.count("seeded by a model's place") == 1
    small.run(paths)
    assert status_of(paths).state is State.DONE


def test_a_run_that_dies_before_its_result_is_written_only_writes_it(small: Small) -> None:
    paths = small.submit(small.prepared({"name": "gc", "s": 1}))
    first = small.run(paths).run.to_dict()
    weights = saved(paths)
    paths.result.unlink()
    assert status_of(paths).state is State.INTERRUPTED
    again = small.run(paths).run.to_dict()
    assert again == first
    assert saved(paths) == weights
    assert read_history(paths.record).lives == 2


def test_a_record_that_was_lost_costs_the_history_and_nothing_else(small: Small) -> None:
    paths = small.submit(small.prepared({"name": "gc", "s": 1}))
    with pytest.raises(Interrupted):
        small.run(paths, 5)
    whole = paths.record.read_bytes()
    paths.record.write_bytes(b"{" + whole)
    with pytest.raises(FolderError, match=r"line 1, .*restore the file, or move it away"):
        small.run(paths)
    assert paths.record.read_bytes() == b"{" + whole
    paths.record.unlink()
    small.run(paths)
    assert status_of(paths).state is State.DONE


def test_a_folder_whose_parts_do_not_fit_is_mended_or_refused_before_anything_is_trained(
    small: Small, gradmux: Gradmux, caplog: pytest.LogCaptureFixture
) -> None:
    job = small.prepared({"name": "gc", "s": 1})
    through, stopped = small.submit(job), small.submit(job)
    small.run(through)
    with pytest.raises(Interrupted):
        small.run(stopped, 6)
    edited = json.loads(stopped.job.read_bytes())
    edited["training"]["steps"] = 1
    whole = stopped.job.read_bytes()
    stopped.job.write_text(json.dumps(edited))
    ran = gradmux("resume", stopped.run)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1), ran.err
    assert re.search(r"training\.steps = 1, but model .* submit a new job", ran.err)
    stopped.job.write_bytes(whole)

    own = sorted(stopped.checkpoints.iterdir())[-1]
    kept = own.read_bytes()
    theirs = next(path for path in sorted(through.checkpoints.iterdir()))
    own.write_bytes(theirs.read_bytes())
    ran = gradmux("resume", stopped.run)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1), ran.err
    assert "is a checkpoint of another run" in ran.err
    own.write_bytes(kept)

    stopped.record.write_bytes(b"".join(stopped.record.read_bytes().splitlines(keepends=True)[:2]))
    small.run(stopped)
    assert "ends before the checkpoint" in caplog.text
    assert saved(stopped) == saved(through)
    history = read_history(stopped.record)
    assert history.steps == [STEPS] * 2
    assert history.unrecorded > 0
