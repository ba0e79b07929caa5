"""What is evaluated: one scheme on n workers with many parameter sets, a column each; and what load they make.

Knows no delays, and no formula: what parameters mean is in the schemes' own `Facts`.
Read next: `grids.py`, which makes batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.schemes.facts import Facts
from gradmux.orchestrator.schemes.passes import most_passes
from gradmux.orchestrator.schemes.registry import get
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """P parameter sets of one scheme."""

    scheme: str
    workers: int
    """n"""
    values: Mapping[str, IntArray | FloatArray]
    """long parameter name -> (P,) values; numeric ones only"""
    size: int
    """P"""
    code: str | None = None
    """of schemes that take one: "fractional" or "cyclic" (a dft code closes rounds when a cyclic one does)"""
    loads: FloatArray | None = None
    """(P,) a fixed load of every invocation, fraction of one batch, instead of the assigned one"""
    passes: int | None = None
    """of every batch: loads are whole passes, for each task those of the workers that have the most; None: any load"""

    def ints(self, name: str) -> IntArray:
        """One parameter of all columns."""
        return np.asarray(self.values[name], dtype=np.int64)

    def params(self, column: int) -> dict[str, int | float | str]:
        """The parameters of one column, as `registry.build_scheme` takes them."""
        numbers: dict[str, int | float | str] = {name: of[column].item() for name, of in self.values.items()}
        return numbers if self.code is None else numbers | {"code": self.code}

    def take(self, columns: IntArray | BoolArray) -> Batch:
        """The batch of these columns, in this order."""
        values = {name: of[columns] for name, of in self.values.items()}
        size = int(np.arange(self.size)[columns].size)
        loads = None if self.loads is None else self.loads[columns]
        return replace(self, values=values, size=size, loads=loads)

    def with_loads(self, loads: FloatArray) -> Batch:
        """The same with a fixed load for each column."""
        return replace(self, loads=loads)

    def tolerance(self) -> IntArray:
        """(P,) s of the code of each job (or of each coded group)."""
        return self.facts.tolerance(self)

    def chunks(self) -> IntArray:
        """(P,) chunks of each codeword: G, groups of a fractional code."""
        return self.facts.chunks(self)

    def parts(self) -> IntArray:
        """(P,) how many chunks a batch is cut into."""
        return self.facts.parts(self)

    def slots(self) -> IntArray:
        """(P,) tasks that a worker has in one round at most, each for a job of its own."""
        return self.facts.slots(self)

    def delay(self) -> IntArray:
        """(P,) T, rounds."""
        return self.facts.delay(self)

    def fits(self) -> BoolArray:
        """(P,) do the parameters fit together?"""
        return self.facts.fits(self)

    def task_load(self) -> FloatArray:
        """(P,) batches, or the fraction of one, that a task is."""
        if self.loads is not None:
            return self.loads
        load = self.facts.task_load(self)
        return load if self.passes is None else most_passes(load, self.passes)

    def load(self) -> FloatArray:
        """(P,) largest fraction of one batch that one worker processes in one round."""
        return self.task_load() if self.loads is not None else self.task_load() * self.slots()

    @property
    def facts(self) -> Facts:
        """What the scheme's own file says of it. Raises: ConfigError when it says nothing."""
        return facts_of(self.scheme)


def facts_of(scheme: str) -> Facts:
    """What the scheme's own file says of it. Raises: ConfigError when it says nothing."""
    facts = get(scheme).facts
    if facts is None:
        raise ConfigError(f"{scheme} says nothing of its loads beforehand: use simulate")
    return facts
