"""Models that workers step: where the state of each is, and the same at home when it is asked for.

A stretch begins with a state and ends with one. Small ones travel in requests and replies; large ones stay in the
store, where the next stretch names what the winner has put there, and are read here for checkpoints and at the end
alone: what goes through the client does not grow with K, but for losses. Used by `trainer.py`; knows neither schemes
nor fleets. Read next: `lambda_worker/stretch.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

from gradmux.lambda_worker.contract import MAX_REQUEST_BYTES, Divergence, Figures, Result, State, Stretched
from gradmux.lambda_worker.digests import DigestError, checked
from gradmux.lambda_worker.messages import CORRECT
from gradmux.lambda_worker.state import StateError
from gradmux.lambda_worker.whole import encode_whole, load_whole
from gradmux.orchestrator.errors import Diverged, GradmuxError
from gradmux.orchestrator.ports import StepResult, Store
from gradmux.orchestrator.store import Keys
from gradmux.orchestrator.training.models import Trained

HEADROOM_BYTES = 65_536
"""Of a request, for all that is in it besides a state; of a reply, for the figures of its steps."""


def inline_state_bytes(message_bytes: int) -> int:
    """How large a state may be that travels, as base64, in a message of so many bytes."""
    return max(0, message_bytes - HEADROOM_BYTES) * 3 // 4


STATE_BYTES = inline_state_bytes(MAX_REQUEST_BYTES)
"""The largest state that AWS lets travel in a request."""


@dataclass(frozen=True, slots=True)
class StretchResult:
    """What one worker sent for a stretch."""

    told: Stretched
    state: State
    """after the steps that were made"""

    @classmethod
    def of(cls, result: Result) -> StretchResult:
        """An ok result of a stretch."""
        assert result.stretch is not None
        state = State(key=result.key) if result.buffer is None else State.of(result.buffer)
        return cls(result.stretch, state)


class StretchedModels:
    """The states of all models, by model and by job."""

    def __init__(self, trained: Sequence[Trained], store: Store, keys: Keys, epoch: int, inline_bytes: int) -> None:
        """States of up to `inline_bytes` travel in requests."""
        self._trained, self._store, self._keys, self._epoch = trained, store, keys, epoch
        self._inline_bytes = inline_bytes
        self._newest: dict[int, State] = {}
        """model -> its state now, where that was sent or came"""
        self._away: set[int] = set()
        """models whose module here is behind that"""
        self._states: dict[int, State] = {}
        """job -> what it starts from"""
        self._asked: dict[int, int] = {}
        """job -> copies that were asked to make it"""
        self._diverged: dict[int, Divergence] = {}
        """by model: its next step will diverge"""
        self._marking: ThreadPoolExecutor | None = None

    def holds(self, job: int) -> bool:
        """Is it published?"""
        return job in self._states

    def publish(self, job: int, model: int) -> None:
        """The state that `job` starts from is there for workers from now on. Raises: Diverged."""
        trained, diverged = self._trained[model], self._diverged.get(model)
        if diverged is not None:
            raise _diverged(trained, diverged)
        if model not in self._newest:
            raw = encode_whole(trained.model, trained.stepper)
            if len(raw) <= self._inline_bytes:
                self._newest[model] = State.of(raw)
            else:
                key = self._keys.weights(self._epoch, model, trained.steps, raw)
                self._store.put(key, raw)
                self._newest[model] = State(key=key)
        self._states[job] = self._newest[model]

    def of(self, job: int) -> State:
        """How the request of one more copy refers to it."""
        self._asked[job] = self._asked.get(job, 0) + 1
        return self._states[job]

    def take(self, job: int, model: int, result: StretchResult, steps: int) -> StepResult:
        """The model is where this worker left it, after `steps` or fewer. Raises: Diverged when there were none."""
        trained, told = self._trained[model], result.told
        self._mark(job)
        if told.steps == 0:
            raise _diverged(trained, told.diverged or Divergence(trained.steps, "no step was made"))
        trained.steps += told.steps
        self._newest[model] = result.state
        self._away.add(model)
        if told.diverged is not None:
            self._diverged[model] = told.diverged
        *earlier, last = _step_results(told.figures)
        cut = None if told.steps == steps else told.steps
        return replace(last, earlier=tuple(earlier), steps=cut)

    def forget(self, model: int) -> None:
        """The model was changed here."""
        self._newest.pop(model, None)
        self._away.discard(model)

    def home(self, model: int) -> None:
        """Brings the model here up to its newest state. Raises: GradmuxError when that is lost."""
        if model not in self._away:
            return
        trained, state = self._trained[model], self._newest[model]
        try:
            raw = state.raw("state")
            if raw is None:
                raw = bytearray(checked(state.key or "", self._store.get(state.key or "")))
            load_whole(trained.model, trained.stepper, raw)
        except (FileNotFoundError, DigestError, StateError) as error:
            lost = f"model {trained.plan.name!r}: its state after {trained.steps} steps is lost ({error})"
            raise GradmuxError(f"{lost}; resume the run: it goes on from its last checkpoint") from error
        self._away.discard(model)

    def retire(self, job: int) -> str | None:
        """No copy of `job` is of use any more: the key of what it started from, if that can be removed."""
        state, _ = self._states.pop(job, None), self._asked.pop(job, None)
        if state is None:
            return None
        wanted = {each.key for each in (*self._states.values(), *self._newest.values())}
        return None if state.key in wanted else state.key

    def _mark(self, job: int) -> None:
        """Copies that are slower may stop: the marker is put aside of everything else, and nothing depends on it."""
        if self._asked.get(job, 0) < 2:
            return
        if self._marking is None:
            self._marking = ThreadPoolExecutor(1, thread_name_prefix="marking")
        self._marking.submit(self._put_marker, self._keys.done(self._epoch, job))

    def _put_marker(self, key: str) -> None:
        with suppress(GradmuxError):
            self._store.put(key, b"")


def _step_results(figures: Figures) -> list[StepResult]:
    """What each step told."""
    correct = figures.metrics.get(CORRECT, ((0.0, 0.0),) * len(figures.loss))
    columns = zip(figures.loss, figures.count, figures.rows, correct, figures.gradient_norm, strict=True)
    named = {name: pairs for name, pairs in figures.metrics.items() if name != CORRECT}
    return [
        StepResult(loss / count, rows, round(hits), norm, metrics=means({name: named[name][i] for name in named}))
        for i, (loss, count, rows, (hits, _), norm) in enumerate(columns)
    ]


def means(metrics: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Sum over count of each; without those of which nothing counted."""
    return {name: total / count for name, (total, count) in metrics.items() if count}


def _diverged(trained: Trained, told: Divergence) -> Diverged:
    return Diverged(trained.plan.name, told.step, told.what, trained.plan.optimizer_args.get("lr"))
