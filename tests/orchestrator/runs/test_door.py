"""What others may have put into a bucket: nothing of it gets past the door but what a run's own mirror makes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.runs import door as doors
from gradmux.orchestrator.runs.door import Piece, lives_in, pieces_in
from gradmux.orchestrator.runs.life import MOST_LIVES, last_life
from gradmux.orchestrator.runs.mirror import bring, bring_from_s3
from gradmux.orchestrator.runs.ownership import distrust_run
from gradmux.orchestrator.store import Keys, MemoryStore
from tests.orchestrator.runs.bench import FAST, SmallJob

JOB = SmallJob("gc", {"s": 1}, models=2, steps=3, every=1)
TWO = [{"name": "model-0"}, {"name": "model-1"}]
HOSTILE = [
    "../escaped",
    "../../../../escaped",
    "/escaped",
    "..",
    ".",
    "",
    "a/b",
    "a\\..\\..\\b",
    "nul\0byte",
    "line\nbreak",
    "\x1b[31mred",
    "x" * 5000,
    "ünïcode",
    "\u202egpj",
    " blank",
    "-rf",
    ".hidden",
    "~root",
]
"""names that are none"""
NOT_NAMES: list[Any] = [*HOSTILE, 3, -1, 1.5, True, None, [], {}, ["a"], {"name": "a"}]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Keys, Mapping[str, bytes]]:
    """All objects of a run that is done, with results as real ones have them."""
    store = MemoryStore()
    paths = JOB.submit(tmp_path_factory.mktemp("kept"))
    JOB.live(paths, store=store)
    keys = Keys(paths.store_name.read_text())
    store.put(keys.folder("result.json"), json.dumps({"run": "small-9", "models": TWO}).encode())
    for model in TWO:
        store.put(keys.folder(f"weights/{model['name']}.safetensors"), b"w")
    store.put(keys.folder("materials/materials.json"), b"{}")
    return keys, {key: store.get(key) for key in store.list("")}


class World:
    """A bucket that was changed, and a home beside which nothing may be written."""

    def __init__(self, keys: Keys, objects: Mapping[str, bytes], place: Path) -> None:
        self.keys, self.home = keys, place / "deep" / "er" / "home"
        self.store = MemoryStore()
        for key, content in objects.items():
            self.store.put(key, content)
        self._place = place
        self._before = self.outside()

    def outside(self) -> set[str]:
        """All that lies beside the home."""
        found = (path for path in self._place.rglob("*") if self.home not in (path, *path.parents))
        return {str(path) for path in found if path not in self.home.parents}

    def bring(self) -> Any:
        """Brings; checks that nothing is outside, and that one line says what is wrong, if something is."""
        try:
            return bring(self.store, self.keys, self.home, disk=FAST)
        except ConfigError as error:
            self._check_refusal(str(error))
            raise
        finally:
            assert self.outside() == self._before

    def _check_refusal(self, told: str) -> None:
        assert told.isprintable()
        assert len(told) < 600
        assert not [path for path in self.home.rglob("*") if path.is_file()], "half a run"

    def put(self, name: str, document: Any) -> None:
        """JSON, into the run's folder in the bucket."""
        self.store.put(self.keys.folder(name), json.dumps(document).encode())


@pytest.fixture
def world(kept: tuple[Keys, Mapping[str, bytes]], tmp_path: Path) -> World:
    return World(*kept, tmp_path)


def test_what_is_good_comes_through_and_says_where_it_is_from(world: World) -> None:
    paths = world.bring()
    assert json.loads(paths.result.read_bytes())["run"] == paths.run == "small-1"
    assert {path.name for path in paths.weights("").parent.iterdir()} == {f"{m['name']}.safetensors" for m in TWO}
    assert "come from that bucket and run with your credentials" in distrust_run(paths)
    paths.origin.write_bytes(b"\x1b[2J\0s3://b\xff" * 1000)
    assert distrust_run(paths).isprintable()
    paths.origin.unlink()
    assert distrust_run(paths) == ""


@pytest.mark.parametrize("name", NOT_NAMES, ids=ascii)
def test_names_of_jobs(world: World, name: Any) -> None:
    world.put("job.json", {"name": name})
    with pytest.raises(ConfigError, match="does not describe a job"):
        world.bring()


@pytest.mark.parametrize("name", NOT_NAMES, ids=ascii)
def test_names_of_models(world: World, name: Any) -> None:
    world.put("result.json", {"models": [{"name": name}, *TWO]})
    with pytest.raises(ConfigError, match="holds no result: its models are"):
        world.bring()


def test_a_model_twice_one_without_weights_and_models_without_end(world: World) -> None:
    world.put("result.json", {"models": [*TWO, TWO[0]]})
    with pytest.raises(ConfigError, match="holds no result"):
        world.bring()
    world.put("result.json", {"models": [*TWO, {"name": "other"}]})
    with pytest.raises(ConfigError, match="lacks the weights of 'other'"):
        world.bring()
    world.put("result.json", {"models": [{"name": f"m{index}"} for index in range(doors.MOST_MODELS + 1)]})
    with pytest.raises(ConfigError, match="holds no result"):
        world.bring()


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
@pytest.mark.parametrize(
    "below", ["", "materials/", "materials/train/shards/", "weights/", "weights/ema/", "record/", "lives/"]
)
def test_names_of_files(world: World, below: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    key = world.keys.folder(f"{below}{name}")
    if name:
        world.store.put(key, b"anything")
    world.store.put(world.keys.checkpoint(name), b"anything")
    paths = world.bring()
    assert not [each for each in paths.folder.rglob("*") if each.is_file() and each.read_bytes() == b"anything"]
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(told) <= 1
    assert all(line.isprintable() and len(line) < 400 for line in told)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'"x"', b"null", b"\xff", b"[" * 100_000, b"9" * 9000], ids=len)
@pytest.mark.parametrize("name", ["job.json", "result.json", "lives/000000"])
def test_what_is_no_json_of_the_right_kind(world: World, name: str, content: bytes) -> None:
    world.store.put(world.keys.folder(name), content)
    with pytest.raises(ConfigError, match="in this bucket"):
        world.bring()


BAD_LIVES: list[dict[str, Any]] = [
    {"epoch": 1},
    {"epoch": -1},
    {"epoch": 0.0},
    {"epoch": True},
    {"epoch": "0"},
    {"epoch": 10**30},
    {"pid": "1"},
    {"pid": -5},
    {"host": "\x1b[31m"},
    {"host": "x" * 500},
    {"token": 5},
    {"started": None},
    {"place": 7},
    {"place": {"backend": 3}},
    {"place": {"backend": "aws", "timeout_s": "long", "own": {}, "billed": {}}},
    {"place": {"backend": "aws", "timeout_s": -1, "own": {}, "billed": {}}},
    {"place": {"backend": "aws", "timeout_s": 1, "own": [], "billed": {}}},
    {"place": {"backend": "aws", "timeout_s": 1, "own": {}, "billed": {"memory_mb": -3}}},
    {"place": {"backend": "aws", "timeout_s": 1, "own": {}, "billed": {"memory_mb": 3, "more": 1}}},
    {"unknown": 1},
]


@pytest.mark.parametrize("change", BAD_LIVES, ids=str)
def test_lives(world: World, change: Mapping[str, Any]) -> None:
    life = json.loads(world.store.get(world.keys.folder("lives/000000")))
    world.put("lives/000000", {**life, **change})
    with pytest.raises(ConfigError, match="life"):
        world.bring()


@pytest.mark.parametrize(
    "own", [{"s3_url": "http://elsewhere"}, {"access": ["a", "b"]}, {"bucket": "another"}, {"x": 1}], ids=str
)
def test_a_place_that_leads_elsewhere_is_not_believed(world: World, own: Mapping[str, Any]) -> None:
    """`gradmux cancel` would send there what only the bucket's owner may see."""
    life = json.loads(world.store.get(world.keys.folder("lives/000000")))
    place = {"backend": "aws", "timeout_s": 1.0, "billed": {}, "own": own}
    world.put("lives/000000", {**life, "place": place})
    brought = last_life(world.bring())
    assert brought is not None
    assert brought.place is None


@pytest.mark.parametrize(
    "marker", [b"", b"-1", b"x", b"1.5", "²".encode(), b"9" * 400, b"1" * 99_999, b"1000000"], ids=len
)
def test_cancel_markers(world: World, marker: bytes) -> None:
    world.store.put(world.keys.cancel, marker)
    with pytest.raises(ConfigError, match=r"cancel in this bucket"):
        world.bring()


def test_a_run_that_was_copied_to_another_name_is_not_taken_for_that(world: World) -> None:
    """Else it would write over the objects of the run that it was copied from."""
    world.store.put(world.keys.folder("store-name"), b"another-run")
    with pytest.raises(ConfigError, match="holds the run b'another-run', not small-"):
        world.bring()


def test_things_that_are_too_large_or_too_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world.store.get(world.keys.folder("job.json"))
    world.store.put(world.keys.folder("job.json"), job + b" " * doors.JSON_BYTES)
    with pytest.raises(ConfigError, match=r"job\.json in this bucket is larger than 16\.8 MB"):
        world.bring()
    world.store.put(world.keys.folder("job.json"), job)
    monkeypatch.setattr(doors, "MOST_OBJECTS", 4)
    with pytest.raises(ConfigError, match="more than 4 objects, which no run has"):
        world.bring()
    monkeypatch.setattr(doors, "MOST_OBJECTS", 1000)
    monkeypatch.setattr(doors, "SPARE_BYTES", 1 << 60)
    with pytest.raises(ConfigError, match="make room, or choose another folder"):
        world.bring()


class Growing(MemoryStore):
    """Announces what it holds, then gives more, and never comes to an end."""

    def pieces(self, key: str) -> Iterator[bytes]:  # type: ignore[override]
        yield from super().pieces(key)  # type: ignore[misc]
        while key.endswith((".zip", ".safetensors")):
            yield b"x" * 65_536


def test_an_object_that_never_ends(kept: tuple[Keys, Mapping[str, bytes]], tmp_path: Path) -> None:
    world = World(*kept, tmp_path)
    endless = Growing()
    for key in world.store.list(""):
        endless.put(key, world.store.get(key))
    world.store = endless
    with pytest.raises(ConfigError, match="which it cannot be"):
        world.bring()


@pytest.mark.parametrize("where", ["checkpoints", "weights", "weights/ema"])
def test_links_that_lead_out_of_the_folder(world: World, where: str, tmp_path: Path) -> None:
    """Of a run that is here already, and is brought up to date."""
    paths = world.bring()
    paths.result.unlink()
    target = tmp_path / "elsewhere"
    target.mkdir()
    link = paths.folder / where
    for each in (paths.folder / "weights", paths.checkpoints):
        for file in sorted(each.rglob("*"), reverse=True):
            file.unlink()
    if link.is_dir():
        link.rmdir()
    link.symlink_to(target)
    paths.life.write_bytes(paths.life.read_bytes().replace(b'"token": "', b'"token": "0'))
    world.store.put(world.keys.folder("weights/ema/model-0.safetensors"), b"w")
    with pytest.raises(ConfigError, match="leads out of the run's folder"):
        bring(world.store, world.keys, world.home, disk=FAST)
    assert not list(target.iterdir())


def test_a_file_that_is_a_link_is_not_written_through(world: World, tmp_path: Path) -> None:
    paths = world.bring()
    target = tmp_path / "precious"
    target.write_text("precious")
    paths.record.unlink()
    paths.record.symlink_to(target)
    paths.life.write_bytes(paths.life.read_bytes().replace(b'"token": "', b'"token": "0'))
    with pytest.raises(ConfigError, match="must be a file, but is a link"):
        bring(world.store, world.keys, world.home, disk=FAST)
    assert target.read_text() == "precious"


NUMBERS = st.integers(0, 40)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 3)), max_size=12))
@example([(0, 0, 0)])
@example([(0, 5, 0), (5, 5, 0)])
@example([(0, 5, 0), (5, 0, 0)])
@example([(0, 5, 0), (5, 3, 1), (3, 5, 2)])
def test_pieces_come_to_an_end_and_follow_from_one_another(numbers: list[tuple[int, int, int]]) -> None:
    found = pieces_in(Piece(start, epoch, end).name for start, end, epoch in numbers)
    assert all(piece.start < piece.end for piece in found)
    assert [piece.start for piece in found] == [0, *(piece.end for piece in found)][: len(found)]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=8), st.from_regex(r"\d{6}"), st.from_regex(r"\d{12}-\d{12}-\d{6}"))))
@example(["²", "١٢٣٤٥٦", "٠٠٠٠٠٠٠٠٠٠٠٠-٠٠٠٠٠٠٠٠٠٠٠١-٠٠٠٠٠٠", "9" * 5000, "-00001", "1e5", "000001\n"])
def test_names_that_look_like_numbers(names: list[str]) -> None:
    """Digits of other scripts, too, which Python takes for digits."""
    assert all(0 <= life <= MOST_LIVES + 1 for life in lives_in(f"lives/{name}" for name in names))
    assert all(f"record/{piece.name.removeprefix('record/')}" == piece.name for piece in pieces_in(names))
    for piece in pieces_in(f"record/{name}" for name in names):
        assert piece.name.removeprefix("record/") in names


def test_a_piece_that_is_not_as_long_as_its_name_says(world: World) -> None:
    name = world.store.list(world.keys.folder("record/0"))[0]
    world.store.put(name, world.store.get(name) + b"more")
    with pytest.raises(ConfigError, match=r"bytes, its name says \d+: remove it there"):
        world.bring()


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///runs/a",
        "s3://b/runs/../a",
        "s3://b/runs/a/b",
        "s3://bucket/runs/..",
        "s3://bucket/runs/" + "x" * 300,
        "s3://bü/runs/a",
        "s3://bucket/runs/a\n",
        "s3://bucket/runs/ä",
        "s3://" + "b" * 300 + "/runs/a",
        "s3://bucket\0/runs/a",
    ],
    ids=ascii,
)
def test_addresses(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a run in S3 is s3://BUCKET/runs/NAME"):
        bring_from_s3(url, tmp_path)
