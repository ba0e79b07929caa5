"""The log of a run: what our loggers say while it runs, in a file of its folder.

A log that cannot be written (a full disk) is given up silently: the record, not the log, is the truth.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOGGERS = ("orchestrator", "infra", "cli")


class QuietFile(logging.FileHandler):
    """Says nothing when it cannot write."""

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
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(min(logger.level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
        handler.close()
