"""Straggler models: declared sets of patterns, over windows of rounds, that a scheme tolerates.

Each is asked `admits` about the round that is open and told `commit` when it closes; both take (workers,) booleans.
A pattern is inside a model iff each of its rounds was admitted after the ones before it. Source: Krishnan, Ebrahimi,
Khisti 2023, section 2 (bursty, arbitrary, per round). Read next: `selective_repeat.py`, whose model looks at repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.scheme import BoolArray, StragglerModel

MODELS = ("bursty", "arbitrary", "either")
"""Names by which a wait policy asks for a scheme's model."""


class PerRound:
    """At most `stragglers` (s) in each round; no memory."""

    def __init__(self, stragglers: int) -> None:
        self.stragglers = stragglers

    def admits(self, late: BoolArray) -> bool:
        """Are they at most s?"""
        return int(np.count_nonzero(late)) <= self.stragglers

    def commit(self, late: BoolArray) -> None:
        """Nothing to remember."""


class Covered:
    """Every set of stragglers without which the open round still decodes; no memory."""

    def __init__(self, decodes_from: Callable[[BoolArray], bool]) -> None:
        self._decodes_from = decodes_from
        """Would the open round decode from exactly these workers?"""

    def admits(self, late: BoolArray) -> bool:
        """Does the round decode from all others?"""
        return self._decodes_from(~late)

    def commit(self, late: BoolArray) -> None:
        """Nothing to remember."""


class _Windowed:
    """Remembers who straggled in the last `window - 1` rounds, oldest first."""

    def __init__(self, window: int, workers: int) -> None:
        self.window = window
        self._past: BoolArray = np.zeros((window - 1, workers), dtype=np.bool_)

    def commit(self, late: BoolArray) -> None:
        """The current round becomes the latest of the past."""
        if self.window > 1:
            self._past = np.concatenate([self._past[1:], late[np.newaxis]])


class Bursty(_Windowed):
    """(B, W, lambda): at most lambda distinct stragglers in W rounds; bursts of at most B rounds, a window apart.

    No worker straggles both in round r and in a round of r-W+1 .. r-B.
    """

    def __init__(self, burst: int, window: int, max_stragglers: int, workers: int) -> None:
        super().__init__(window, workers)
        self.burst, self.max_stragglers = burst, max_stragglers

    def admits(self, late: BoolArray) -> bool:
        """Few enough in the window, and none of them straggled B or more rounds ago?"""
        if not late.any():
            return True
        distinct = late | self._past.any(axis=0)
        if int(np.count_nonzero(distinct)) > self.max_stragglers:
            return False
        return not (late & self._past[: self.window - self.burst].any(axis=0)).any()


class Arbitrary(_Windowed):
    """(N, W', lambda'): at most lambda' distinct stragglers in W' rounds, each in at most N of them."""

    def __init__(self, times: int, window: int, max_stragglers: int, workers: int) -> None:
        super().__init__(window, workers)
        self.times, self.max_stragglers = times, max_stragglers

    def admits(self, late: BoolArray) -> bool:
        """Few enough in the window, none too often?"""
        if not late.any():
            return True
        counts = self._past.sum(axis=0)
        if int(np.count_nonzero(late | (counts > 0))) > self.max_stragglers:
            return False
        return int(counts[late].max()) < self.times


class Either:
    """The union of models: one of them holds over the whole history.

    After a pattern outside all of them (a deadline forced it) all are tried anew.
    """

    def __init__(self, models: Sequence[StragglerModel]) -> None:
        self._models = tuple(models)
        self._holds = [True] * len(self._models)

    def admits(self, late: BoolArray) -> bool:
        """Does a model that has held so far admit it?"""
        return any(holds and model.admits(late) for holds, model in zip(self._holds, self._models, strict=True))

    def commit(self, late: BoolArray) -> None:
        """Drops the models that did not admit this round."""
        pairs = list(zip(self._holds, self._models, strict=True))
        self._holds = [holds and model.admits(late) for holds, model in pairs]
        if not any(self._holds):
            self._holds = [True] * len(self._models)
        for model in self._models:
            model.commit(late)


def choose_model(scheme: str, name: str, bursty: StragglerModel, arbitrary: StragglerModel) -> StragglerModel:
    """The model that `name` means for a scheme with these two.

    Raises: ConfigError when there is no such model.
    """
    if name not in MODELS:
        raise ConfigError(f"{scheme} has no straggler model {name!r}: use one of {', '.join(MODELS)}")
    return {"bursty": bursty, "arbitrary": arbitrary, "either": Either((bursty, arbitrary))}[name]
