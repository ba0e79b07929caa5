"""Malformed job files, replies, records, checkpoints and folders, by the hundred: a clear error each, or the right
answer; no exception of another kind, and no file written over."""

from __future__ import annotations

import base64
import datetime
import json
import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.lambda_worker.contract import ContractError, encode_result, parse_request
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.errors import ConfigError, GradmuxError, PreflightError
from gradmux.orchestrator.fleets.refusals import Verdict
from gradmux.orchestrator.fleets.replies import Answer, ReplyReader
from gradmux.orchestrator.job_file import load_job, parse_job
from gradmux.orchestrator.ports import Arrival, Invocation, Outcome
from gradmux.orchestrator.record import RecordError
from gradmux.orchestrator.runs.checkpoints import Checkpoints
from gradmux.orchestrator.runs.history import read_history
from gradmux.orchestrator.runs.life import FolderError, last_life
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.status import State, read_result, status_of
from gradmux.orchestrator.schemes.scheme import Task
from gradmux.orchestrator.store import MemoryStore
from tests.orchestrator.runs.bench import SmallJob

TREE: dict[str, Any] = {
    "name": "job",
    "cluster": {"backend": "local", "workers": 8, "concurrency": 100, "memory_mb": 512, "timeout_s": 30.0},
    "scheme": {"name": "gc", "s": 1, "wait": "earliest", "mu": 1.0, "in_flight_cap": 0.1},
    "data": {"train": "digits:train", "eval": "digits:test", "batch_size": 64},
    "training": {"steps": 3, "loss": "cross_entropy", "seed": 0, "checkpoint_every": 1, "clip_norm": 1.0},
    "models": [{"name": "m", "factory": "a:b", "args": {"h": 1}, "optimizer": {"name": "Adam", "lr": 0.1}}],
    "sweep": {"optimizer.lr": [0.1, 0.2]},
    "emulator": {"delays": "none", "time_scale": 1.0, "faults": {"crash": 0.1}},
}
JUNK: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([-1, 0, 10**30, -(10**30), 1.5, float("nan"), float("inf"), True, "", "x" * 300, "ü\n\0", [], {}]),
    st.sampled_from([[[]], [1, "a"], {"a": {"b": []}}, datetime.date(2026, 1, 1), "../..", "a:b", [{"name": 3}]]),
    st.text(max_size=8),
    st.integers(-5, 5),
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, value in items for place in places(value, (*path, key)))]


@st.composite
def broken_trees(draw: st.DrawFn) -> Any:
    """A job with one to three values replaced, taken away or put under another name."""
    tree = json.loads(json.dumps(TREE))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(tree)[1:]))
        holder = tree
        for key in path[:-1]:
            holder = holder[key]
        how = draw(st.sampled_from(["replace", "remove", "rename"]))
        if how == "replace" or isinstance(holder, list):
            holder[path[-1]] = deepcopy(draw(JUNK))
        elif how == "remove":
            del holder[path[-1]]
        else:
            holder[draw(st.text(min_size=1, max_size=6))] = holder.pop(path[-1])
        if not tree:
            break
    return tree


def assert_clear(text: str) -> None:
    """People can read it, and it is not the inside of a library."""
    assert text.strip()
    assert "Traceback" not in text
    assert "pydantic" not in text
    assert all(len(line) < 600 for line in text.splitlines())


@settings(max_examples=250, deadline=None)
@given(broken_trees())
def test_jobs(tree: Any) -> None:
    try:
        config = parse_job(tree, "job.toml")
    except ConfigError as error:
        wrong = str(error)
    else:
        assert parse_job(json.loads(config.model_dump_json()), "again") == config, "what is valid is kept as it is"
        return
    assert_clear(wrong)
    assert all(line.startswith("job.toml: ") for line in wrong.splitlines())


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 40))
def test_job_files(junk: bytes, at: int, gone: int) -> None:
    text = Path(__file__).with_name("job.toml").read_bytes()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_bytes(text[:at] + junk + text[at + gone :])
        before = path.read_bytes()
        try:
            assert isinstance(load_job(path), JobConfig)
        except ConfigError as error:
            assert_clear(str(error))
        assert path.read_bytes() == before


# --- what workers send -------------------------------------------------------------------------------------------

CALL = Invocation(3, 1, 1, (Task(0, (0,), (1.0,)),), 0.1, epoch=2)


def good_reply() -> dict[str, Any]:
    buffer = encode_result(np.ones(5, np.float32), np.ones(3))
    result = {"slot": 0, "job": 0, "message": 0, "status": "ok", "error": None, "distance": None, "key": None}
    packed = base64.b64encode(buffer).decode()
    more = {"buffer": packed, "size": len(buffer), "offset": 0, "scale": 1.0, "sums": None}
    place = {"run": "r", "epoch": 2, "round": 3, "worker": 1, "attempt": 1}
    timing = {"compute_s": 0.1, "read_s": 0.0, "write_s": 0.0, "cold": False}
    return {"protocol": 3, "op": "gradient", **place, "results": [{**result, **more}], "timing": timing, "cpu": ""}


def read_reply(body: bytes) -> Arrival:
    reader = ReplyReader("r", MemoryStore())
    answer = Answer(Verdict.ANSWERED, "", body)
    parsed = reader.parse(CALL, answer)
    return parsed if isinstance(parsed, Arrival) else reader.finish(CALL, parsed, "")


def test_the_reply_that_is_broken_below_is_good() -> None:
    assert read_reply(orjson.dumps(good_reply())).outcome is Outcome.OK


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_replies(data: st.DataObject) -> None:
    reply = good_reply()
    path = data.draw(st.sampled_from(places(reply)[1:]))
    holder: Any = reply
    for key in path[:-1]:
        holder = holder[key]
    junk = data.draw(JUNK.filter(lambda value: isinstance(value, str | int | float | list | dict | bool)))
    holder[path[-1]] = deepcopy(junk)
    try:
        body = json.dumps(reply).encode()
        arrival = read_reply(body)
    except PreflightError as error:
        assert path == ("protocol",)
        assert_clear(str(error))
        return
    assert arrival.outcome is Outcome.OK or (arrival.error and not arrival.slots)
    assert (arrival.round, arrival.worker, arrival.attempt) == (3, 1, 1)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_replies_with_flipped_bits_and_torn_ones(seed: int) -> None:
    """Whatever is damaged: the call failed, or the very vector that was sent came."""
    rng = random.Random(seed)
    body = bytearray(orjson.dumps(good_reply()))
    if rng.random() < 0.3:
        del body[rng.randrange(len(body)) :]
    for _ in range(rng.randrange(1, 4)):
        if body:
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    try:
        arrival = read_reply(bytes(body))
    except PreflightError as error:  # the damage has made it another version's
        assert_clear(str(error))
        return
    for result in arrival.results.values():
        assert result.gradient.tolist() == [1.0] * 5
        assert result.sums.tolist() == [1.0] * 3


@settings(max_examples=100, deadline=None)
@given(st.recursive(JUNK, lambda inner: st.dictionaries(st.sampled_from(list(good_reply())), inner), max_leaves=6))
def test_requests(event: Any) -> None:
    with pytest.raises(ContractError) as caught:
        parse_request(event)
    assert_clear(str(caught.value))


# --- the folder of a run -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    job = SmallJob(every=1)
    paths = job.submit(tmp_path_factory.mktemp("finished"))
    job.live(paths)
    return paths


def damaged(data: bytes, seed: int) -> bytes:
    """Bits flipped, a piece taken out or put in, or the end torn off."""
    rng = random.Random(seed)
    at = rng.randrange(len(data))
    how = rng.randrange(4)
    if how == 0:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if how == 1:
        return data[:at] + data[at + rng.randrange(1, 80) :]
    if how == 2:
        return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
    return data[:at]


def with_damage(path: Path, seed: int, look: Callable[[], object], clear: type[GradmuxError]) -> bool:
    """Damages a file, looks, and puts it right again. True when the damage was noticed."""
    whole = path.read_bytes()
    path.write_bytes(damaged(whole, seed))
    before = path.read_bytes()
    try:
        look()
    except clear as error:
        assert_clear(str(error))
        return True
    finally:
        assert path.read_bytes() == before, "looking changes nothing"
        path.write_bytes(whole)
    return False


def test_records(finished: RunPaths) -> None:
    noticed = 0
    for seed in range(200):
        noticed += with_damage(finished.record, seed, lambda: read_history(finished.record), RecordError)
        assert status_of(finished).state is State.DONE
    assert noticed > 100, "a record whose numbers still fit together may pass, most cannot"


def test_a_damaged_record_makes_the_run_damaged_in_lists_and_nothing_else(finished: RunPaths) -> None:
    whole = finished.record.read_bytes()
    finished.record.write_bytes(b"{" + whole)
    try:
        status = status_of(finished)
    finally:
        finished.record.write_bytes(whole)
    assert status.state is State.DAMAGED
    assert_clear(status.reason)


def test_checkpoints_are_whole_or_the_one_before_is_taken(finished: RunPaths) -> None:
    checkpoints = Checkpoints(finished.checkpoints)
    before, last = checkpoints.files()
    whole, fallen_back = last.read_bytes(), 0
    newest = checkpoints.newest()
    assert newest is not None
    for seed in range(200):
        last.write_bytes(damaged(whole, seed))
        found = checkpoints.newest()
        assert found is not None
        if found.manifest == newest.manifest:
            assert found.states == newest.states, "what is taken is what was saved"
        else:
            fallen_back += 1
            assert found.manifest.file_name == before.name
    last.write_bytes(whole)
    assert fallen_back > 100


def test_other_files_of_a_run(finished: RunPaths) -> None:
    noticed = 0
    for seed in range(60):
        noticed += with_damage(finished.life, seed, lambda: last_life(finished), FolderError)
        noticed += with_damage(finished.result, seed, lambda: read_result(finished), FolderError)
        noticed += with_damage(finished.job, seed, lambda: _status_or_error(finished), FolderError)
    assert noticed > 60


def _status_or_error(paths: RunPaths) -> None:
    status = status_of(paths)
    if status.state is State.DAMAGED:
        raise FolderError(status.reason)
