"""What is evaluated: one scheme on n workers with many parameter sets, a column each; and what load they make.

Knows no delays. The load formulas are the schemes' own (`SchemeInfo.load`); tests hold them to the assignments made.
Read next: `grids.py`, which makes batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.schemes.passes import most_passes
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
        if self.scheme in ("uncoded", "backup"):
            return np.zeros(self.size, dtype=np.int64)
        if self.scheme == "m-sgc":
            return self.ints("max_stragglers")
        if self.scheme == "stretch":
            return self.ints("copies") - 1
        if self.scheme == "sr-sgc":
            burst, window, most = (self.ints(name) for name in ("burst", "window", "max_stragglers"))
            return -(-burst * most // (window - 1 + burst))
        return self.ints("stragglers")

    def chunks(self) -> IntArray:
        """(P,) G, groups of a fractional code."""
        return self.workers // (self.tolerance() + 1)

    def parts(self) -> IntArray:
        """(P,) how many chunks a batch is cut into."""
        chunks = np.full(self.size, self.workers) if self.code == "cyclic" else self.chunks()
        if self.scheme != "m-sgc":
            return chunks
        return self.workers * (self.ints("window") - 1) + self.ints("burst") * chunks

    def code_load(self) -> FloatArray:
        """(P,) fraction of what a code encodes that one worker processes."""
        if self.code == "cyclic":
            return (self.tolerance() + 1) / self.workers
        return 1.0 / self.chunks()

    def task_load(self) -> FloatArray:
        """(P,) batches, or the fraction of one, that a task is: all that a worker does in a round, except in m-sgc."""
        if self.loads is not None:
            return self.loads
        if self.scheme == "stretch":
            return self.ints("steps").astype(np.float64)
        load = self._exact_load()
        return load if self.passes is None else most_passes(load, self.passes)

    def _exact_load(self) -> FloatArray:
        """(P,) what a task is of one batch that can be cut anywhere."""
        if self.scheme != "m-sgc":
            return self.code_load()
        private = self.ints("window") - 1
        part = self.code_load()
        group: FloatArray = 1.0 / (self.ints("burst") + self.workers * private * part)
        return part * group

    def load(self) -> FloatArray:
        """(P,) largest fraction of one batch that one worker processes in one round."""
        if self.loads is not None or self.scheme != "m-sgc":
            return self.task_load()
        return self.task_load() * (self.ints("window") - 1 + self.ints("burst"))

    def delay(self) -> IntArray:
        """(P,) T, rounds."""
        if self.scheme == "sr-sgc":
            return self.ints("burst")
        if self.scheme == "m-sgc":
            return self.ints("window") - 2 + self.ints("burst")
        return np.zeros(self.size, dtype=np.int64)
