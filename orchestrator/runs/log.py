"""The log of a run: what our loggers say while it runs, in a file of its folder, written and read.

A log that cannot be written (a full disk) is given up silently: the record, not the log, is the truth.
Read next: `keeper.py`.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

from gradmux.orchestrator.disk import private_opener
from gradmux.orchestrator.record import Header, Line, Recorder, RoundLine
from gradmux.orchestrator.runs.lock import is_held
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.schemes.codes.code import noise_warning

log = logging.getLogger(__name__)

TROUBLES_TOLD = 20
"""different ones of a life; the record has them all"""
LOGGER = "gradmux"
LOOK_S = 0.2
"""between two looks at a log that is followed"""


class QuietFile(logging.FileHandler):
    """Says nothing when it cannot write; nobody but its owner reads it."""

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(open(self.baseFilename, "ab", opener=private_opener), encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:
        """Gives the line up."""


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """While open, INFO and above of our loggers go to the end of the file, too."""
    handler = QuietFile(path, encoding="utf-8", delay=True)
    formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    handler.setLevel(logging.INFO)
    logger = logging.getLogger(LOGGER)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


class LoggedRecord:
    """A recorder that says one line a round, and each trouble of workers once, with its traceback."""

    def __init__(self, record: Recorder) -> None:
        self._record = record
        self._warned = False
        self._troubles: set[tuple[str, str]] = set()

    def write(self, line: Line) -> None:
        self._record.write(line)
        self._warn_of_noise(line)
        self._tell_troubles(line)
        if isinstance(line, RoundLine):
            took_s, decoded = line.end_s - line.start_s, len(line.decoded)
            log.info("round %d: %.3f s, %d late, %d decoded", line.round, took_s, len(line.late), decoded)
        elif isinstance(line, Header):
            log.info("life %d of %s begins with job %d", line.epoch, line.run, line.first)
        else:
            log.info("%s%s", line.state, f": {line.reason}" if line.reason else "")

    def _warn_of_noise(self, line: Line) -> None:
        """Once a run: from then on the record has it."""
        worst = 0.0 if isinstance(line, Header) else max((each.amplification for each in line.decoded), default=0.0)
        warning = noise_warning(worst)
        if warning and not self._warned:
            self._warned = True
            log.warning("%s", warning)

    def _tell_troubles(self, line: Line) -> None:
        """The first time that calls fail in a certain way: such calls are made again, and usually that is all."""
        for arrival in () if isinstance(line, Header) else line.arrivals:
            if arrival.slots or not arrival.error:
                continue
            kind = (arrival.outcome, re.sub(r"[0-9a-f-]{8,}|\d+", "", arrival.error.partition("\n")[0]))
            if kind not in self._troubles and len(self._troubles) < TROUBLES_TOLD:
                self._troubles.add(kind)
                where = f"round {arrival.round}, worker {arrival.worker}, attempt {arrival.attempt}"
                log.info("%s %s: %s", where, arrival.outcome.replace("_", " "), arrival.error)


def said(paths: RunPaths, *, follow: bool = False) -> Iterator[str]:
    """The whole lines of a run's log, and with `follow` those that come until nothing runs it any more."""
    tail, going_on = _Tail(paths.log), True
    while going_on:
        going_on = follow and is_held(paths.lock)
        yield from tail.read()
        if going_on:
            time.sleep(LOOK_S)


class _Tail:
    """The whole lines of a file that may still grow, or not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[str]:
        """What is new."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        yield from whole.decode(errors="replace").splitlines()
