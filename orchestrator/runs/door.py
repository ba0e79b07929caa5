"""The one door by which a run comes out of a bucket: every name, number, size, count and path is checked here first.

A bucket may hold anything: what others have put there, or half of what a killed machine was putting. Only names that a
run's own mirror makes are taken, and each becomes a path inside the run's folder by the table below; sizes and counts
have bounds; JSON is read as plain values that are checked one by one. What a run never makes is left out with one line
in the log; what contradicts itself is a ConfigError of one line, before a byte of it lies on this disk.

    folder/job.json, folder/store-name, folder/result.json
    folder/materials/...              as `materials.py` names them
    folder/lives/EPOCH                six digits
    folder/record/FROM-TO-EPOCH       FROM < TO, bytes of the record
    folder/weights/[ema/]MODEL.safetensors
    checkpoints/EPOCH-STEPS.zip

What is said of code is `ownership.py`'s: nothing is unpickled here. Read next: `mirror.py`, which goes through.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Bucket
from gradmux.orchestrator.runs.life import MOST_LIVES, NEVER, Life, parse_life
from gradmux.orchestrator.store import Keys

log = logging.getLogger(__name__)

JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,119}")
LIFE = re.compile(r"[0-9]{6}")
PIECE = re.compile(r"([0-9]{12})-([0-9]{12})-([0-9]{6})")
"""which bytes of the record a piece holds, and whose it is"""
CHECKPOINT = re.compile(r"[0-9]{6}-[0-9]{10}\.zip")
MATERIAL = re.compile(
    r"materials/(materials\.json|(train|eval)\.[xy]\.npy|(train|eval)/(index\.json|shards/[0-9a-f]{64}))"
)
WEIGHTS = re.compile(r"weights/(?:ema/)?([A-Za-z0-9][A-Za-z0-9._=+-]{0,119})\.safetensors")
PLAIN = ("job.json", "store-name", "result.json")

MOST_OBJECTS = 200_000
"""of one run: a record that grows by a piece a checkpoint has as many pieces"""
MOST_MODELS = 10_000
JSON_BYTES = 16 << 20
"""of the job, and of its result"""
NOTE_BYTES = 64 << 10
"""of a life, and of the cancel marker"""
CODE_BYTES = 1 << 30
"""of `materials.json`: functions, with what they refer to"""
SPARE_BYTES = 64 << 20
"""that stay free on the disk"""
NAMES_TOLD = 3


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """A part of the record, in the order in which pieces are looked at."""

    start: int
    """byte"""
    epoch: int
    """the life that wrote it"""
    end: int
    """byte after its last"""

    @property
    def name(self) -> str:
        return f"record/{self.start:012d}-{self.end:012d}-{self.epoch:06d}"


def life_name(epoch: int) -> str:
    """Under which a life is claimed."""
    return f"lives/{epoch:06d}"


def lives_in(names: Iterable[str]) -> list[int]:
    """The numbers of the lives among these names of a run's folder, sorted; other names are none of a life."""
    found = (name.removeprefix("lives/") for name in names if name.startswith("lives/"))
    return sorted(int(number) for number in found if LIFE.fullmatch(number))


def pieces_in(names: Iterable[str]) -> list[Piece]:
    """The pieces that follow from one another; where two lives wrote from one place on, the later one's.

    Each begins where the one before ends, and holds something: so it comes to an end, whatever the names say.
    """
    newest: dict[int, Piece] = {}
    for piece in sorted(filter(None, map(_piece, names))):
        newest[piece.start] = piece
    found: list[Piece] = []
    following = newest.get(0)
    while following is not None:
        found.append(following)
        following = newest.get(following.end)
    return found


def _piece(name: str) -> Piece | None:
    match = PIECE.fullmatch(name.removeprefix("record/")) if name.startswith("record/") else None
    if match is None:
        return None
    start, end, epoch = map(int, match.groups())
    return Piece(start, epoch, end) if start < end else None


def read_json(raw: bytes, what: str) -> Any:
    """Plain values. Raises ConfigError for what is no JSON, or nested without end."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{what} in this bucket is not JSON: {str(error).partition(chr(10))[0][:80]}") from error


@dataclass(frozen=True, slots=True)
class Brought:
    """The result of a run that is done."""

    document: Mapping[str, Any]
    """its `models` are tables with names that may be those of files, each once"""
    weights: Sequence[str]
    """names in the folder, averages too"""


class Door:
    """One run in a bucket, as far as it may be brought. Reading never gives more bytes than were announced."""

    def __init__(self, store: Bucket, keys: Keys) -> None:
        """Looks at all names. Raises ConfigError when there are more than any run has."""
        self._store, self._keys = store, keys
        self._sizes = dict(self._listed(keys.folder("")))
        self._checkpoints = dict(self._listed(keys.checkpoint("")))
        self.lives = lives_in(self._sizes)
        self._tell_left_out()

    @property
    def materials(self) -> list[str]:
        """Names of the kept functions and rows, in the folder."""
        return sorted(name for name in self._sizes if MATERIAL.fullmatch(name))

    @property
    def checkpoints(self) -> list[str]:
        """Names, oldest first."""
        return sorted(name for name in self._checkpoints if CHECKPOINT.fullmatch(name))

    def require_room(self, folder: Path) -> None:
        """Raises ConfigError when the disk of `folder` has no room for all of it."""
        wanted = sum(self._sizes.values()) + sum(self._checkpoints.values())
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        if wanted + SPARE_BYTES > free:
            raise ConfigError(
                f"{self._keys.prefix} in this bucket has {_mb(wanted)}, but {folder} has {_mb(free)} free: make room, "
                "or choose another folder with --home"
            )

    def job(self) -> tuple[str, bytes]:
        """The job's name, which becomes that of the folder, and the job. Raises ConfigError."""
        raw = self._whole("job.json", JSON_BYTES)
        tree = read_json(raw, self._keys.folder("job.json"))
        name = tree.get("name") if isinstance(tree, dict) else None
        if not isinstance(name, str) or not JOB_NAME.fullmatch(name):
            told = f": its name is {_shown(name)}" if isinstance(tree, dict) and "name" in tree else ""
            raise ConfigError(f"{self._keys.folder('job.json')} in this bucket does not describe a job{told}")
        return name, raw

    def require_same_run(self) -> None:
        """Raises ConfigError when what lies there says that it is another run."""
        if "store-name" in self._sizes and (named := self._whole("store-name", NOTE_BYTES)) != self._keys.run.encode():
            raise ConfigError(
                f"{self._keys.prefix} in this bucket holds the run {_shown(named)}, not {self._keys.run}: it was "
                "copied there, resume it from its own place"
            )

    def life(self, epoch: int) -> Life:
        """One that was begun. Raises ConfigError when it is not what its name says."""
        key = self._keys.folder(life_name(epoch))
        fields = read_json(self._whole(life_name(epoch), NOTE_BYTES), key)
        try:
            life = parse_life(fields)
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise ConfigError(f"{key} in this bucket does not describe a life of a run") from error
        if life.epoch != epoch:
            raise ConfigError(f"{key} in this bucket is of life {life.epoch}")
        return life

    def cancelled(self) -> int:
        """The last life that was cancelled; NEVER when there is none. Raises ConfigError."""
        from gradmux.lambda_worker.contract import ContractError, cancelled_epoch

        if not self._store.exists(self._keys.cancel):
            return NEVER
        raw = b"".join(_within(self._store.pieces(self._keys.cancel), NOTE_BYTES, self._keys.cancel))
        try:
            epoch = cancelled_epoch(raw)
        except ContractError as error:
            raise ConfigError(f"{self._keys.cancel} in this bucket: {error}") from error
        if epoch > MOST_LIVES:
            raise ConfigError(f"{self._keys.cancel} in this bucket cancels life {epoch}, which no run comes to")
        return epoch

    def material(self, name: str) -> Iterator[bytes | memoryview]:
        """One of `materials`, piece by piece. Raises ConfigError."""
        return self._pieces(name, CODE_BYTES if name.endswith(".json") else None)

    def checkpoint(self, name: str) -> Iterator[bytes | memoryview]:
        """One of `checkpoints`, piece by piece. Raises ConfigError."""
        key = self._keys.checkpoint(name)
        return _within(self._store.pieces(key), self._checkpoints[name], key)

    def require_whole_record(self) -> None:
        """Raises ConfigError when a piece of it is longer or shorter than its name says."""
        for piece in pieces_in(self._sizes):
            if self._sizes[piece.name] != piece.end - piece.start:
                told = f"{self._sizes[piece.name]} bytes, its name says {piece.end - piece.start}"
                raise ConfigError(f"{self._keys.folder(piece.name)} in this bucket has {told}: remove it there")

    def record(self) -> Iterator[bytes | memoryview]:
        """The record, piece by piece. Raises ConfigError."""
        for piece in pieces_in(self._sizes):
            yield from self._pieces(piece.name, None)

    def result(self) -> Brought | None:
        """The result of the run, if it is done. Raises ConfigError."""
        if "result.json" not in self._sizes:
            return None
        key = self._keys.folder("result.json")
        result = read_json(self._whole("result.json", JSON_BYTES), key)
        models = result.get("models") if isinstance(result, dict) else None
        if not isinstance(models, list) or len(models) > MOST_MODELS:
            raise ConfigError(f"{key} in this bucket holds no result")
        names = [model.get("name") if isinstance(model, dict) else None for model in models]
        odd = next((name for name in names if not isinstance(name, str) or not MODEL_NAME.fullmatch(name)), None)
        if len(names) != len(set(map(repr, names))) or odd is not None or None in names:
            raise ConfigError(f"{key} in this bucket holds no result: its models are {_shown(names)}")
        return Brought(result, self._weights([str(name) for name in names]))

    def _weights(self, models: Sequence[str]) -> list[str]:
        found = {name: match[1] for name in self._sizes if (match := WEIGHTS.fullmatch(name))}
        lost = next((model for model in models if f"weights/{model}.safetensors" not in found), None)
        if lost is not None:
            raise ConfigError(f"{self._keys.folder('weights/')} in this bucket lacks the weights of {lost!r}")
        return sorted(name for name, model in found.items() if model in set(models))

    def weights(self, name: str) -> Iterator[bytes | memoryview]:
        """One of a result's weights, piece by piece. Raises ConfigError."""
        return self._pieces(name, None)

    def _listed(self, prefix: str) -> Iterator[tuple[str, int]]:
        """(name under the prefix, bytes)."""
        found = self._store.sizes(prefix, MOST_OBJECTS + 1)
        if len(found) > MOST_OBJECTS:
            raise ConfigError(f"{prefix} in this bucket has more than {MOST_OBJECTS} objects, which no run has")
        return ((key.removeprefix(prefix), size) for key, size in found.items())

    def _tell_left_out(self) -> None:
        """Names that no run makes: by one line."""
        patterns = (MATERIAL, WEIGHTS)
        folder = [name for name in self._sizes if not (name in PLAIN or any(p.fullmatch(name) for p in patterns))]
        lives = set(map(life_name, self.lives))
        odd = [name for name in folder if name not in lives and _piece(name) is None]
        odd += [f"checkpoints/{name}" for name in self._checkpoints if not CHECKPOINT.fullmatch(name)]
        odd = [name for name in odd if not name.endswith("/")]  # a folder's own marker
        if odd:
            more = f" and {len(odd) - NAMES_TOLD} more" if len(odd) > NAMES_TOLD else ""
            told = ", ".join(_shown(name) for name in sorted(odd)[:NAMES_TOLD])
            log.warning("%s: left out %s%s: no run has anything of that name", self._keys.prefix, told, more)

    def _whole(self, name: str, most: int) -> bytes:
        return b"".join(self._pieces(name, most))

    def _pieces(self, name: str, most: int | None) -> Iterator[bytes | memoryview]:
        """An object of the folder. Raises ConfigError: it is not there, or larger than such a thing is."""
        key = self._keys.folder(name)
        if name not in self._sizes:
            raise ConfigError(f"{key} is not in this bucket, so that the run cannot go on from there")
        bound = self._sizes[name] if most is None else most
        return _within(self._store.pieces(key), bound, key)


def _within(pieces: Iterable[bytes | memoryview], most: int, key: str) -> Iterator[bytes | memoryview]:
    """The pieces as long as they have no more bytes than that. Raises ConfigError."""
    left = most
    try:
        for piece in pieces:
            left -= len(piece)
            if left < 0:
                raise ConfigError(f"{key} in this bucket is larger than {_mb(most)}, which it cannot be")
            yield piece
    except FileNotFoundError as error:
        raise ConfigError(f"{key} has gone from this bucket while it was read: try again") from error


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size} bytes"


def _shown(value: object) -> str:
    """In one short line without control characters."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def safe_place(fields: Mapping[str, Any], bucket: str) -> bool:
    """Does a life's place name the bucket that it was brought from, and no address or key of somebody's own?"""
    own = {name: value for name, value in fields.items() if value is not None}
    return set(own) <= {"bucket", "function"} and own.get("bucket", bucket) == bucket
