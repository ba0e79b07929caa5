"""What follows from how a model behaves: nothing to say, one line of warning, or a refusal that says what to do.

Read next: `clean.py`, which asks the same in a process without the user's files.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradmux.lambda_worker.models import Model
from gradmux.lambda_worker.norms import normalising_by_pass
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.trial.keeping import Kept, find_kept
from gradmux.orchestrator.training.trial.mixing import Mixing, find_mixing, told
from gradmux.orchestrator.training.trial.playing import RowsOf

FEW = 4
"""rows of the first passes that are played"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one kind of model behaves, and what that means for its passes."""

    mixing: Mixing | None
    """where rows interact"""
    draws: tuple[str, ...]
    """generators that passes draw random numbers from"""
    buffers: tuple[str, ...]
    """that a forward changes, but for batch norm's running statistics"""

    @property
    def fixed(self) -> bool:
        """Does the result depend on how a batch is cut into passes?"""
        return self.mixing is not None or bool(self.draws or self.buffers)

    @property
    def unsteady(self) -> str:
        """Why a gradient of the same rows and weights is another one at another step; empty: it is the same."""
        if self.buffers:
            return f"changes buffer {self.buffers[0]}"
        if self.mixing is not None:
            return f"mixes rows in {self.mixing.where}"
        return "draws random numbers" if self.draws else ""

    def warning(self, name: str, pass_rows: int) -> str | None:
        """What a user must know, in one line; None: nothing."""
        if self.mixing is None:
            return None
        return (
            f"model {name!r}: rows interact in {self.mixing.where}, so what is trained depends on how batches are cut: "
            f"into passes of up to {pass_rows} rows, for all schemes and any number of workers (training.pass_rows)"
        )


def find_outcome(model: Model, rows: RowsOf, name: str, pass_rows: int) -> Outcome:
    """Plays passes of a few rows and of `pass_rows`; parameters and buffers are as before.

    Raises: ConfigError in one line for what no scheme can train; the model's own exceptions pass.
    """
    kept = find_kept(model, rows, FEW)
    refuse(kept, name)
    mixing = find_mixing(model, rows, sorted({FEW, max(FEW, pass_rows)})) or _normalised(model)
    named = dict(model.module.named_buffers())
    own = {id(buffer) for buffer in model.buffers}
    return Outcome(mixing, kept.draws, tuple(name for name in kept.buffers if id(named[name]) in own))


def _normalised(model: Model) -> Mixing | None:
    """Batch norm mixes rows even where these weights do not show it: behind a layer that gives all rows alike."""
    name = normalising_by_pass(model.module)
    return None if name is None else Mixing(told(name, type(model.module.get_submodule(name)).__name__), size=0.0)


def refuse(kept: Kept, name: str) -> None:
    """Raises ConfigError for what cannot travel between workers."""
    if kept.parameters:
        raise ConfigError(
            f"model {name!r}: its forward changes parameter {kept.parameters[0]}, each worker's in its own way (as "
            "max_norm of an embedding does): limit weights in the optimizer's step, or use a parametrization"
        )
    if kept.attributes:
        raise ConfigError(
            f"model {name!r}: its forward changes {kept.attributes[0]}, on which its outputs depend; attributes do not "
            "travel between workers: register it as a buffer"
        )
    if kept.unsteady:
        raise ConfigError(
            f"model {name!r}: the same rows, weights and seed give other results from one pass to the next: it keeps "
            "state outside of buffers, or draws random numbers that torch, numpy and random do not seed; use theirs"
        )
