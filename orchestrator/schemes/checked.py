"""A scheme that is checked, not trusted: everything it answers is looked at before the loop acts on it.

The loop, the simulator and the drawings hold a scheme only through `Checked`. It checks the structure of what is
assigned (`sound.py`), forms weights x rows itself for every decode (`rows.py`), and puts those figures in place of the
ones that the scheme states. A mistake, or whatever the scheme raises, is one `SchemeFault` that names scheme, round,
worker and chunk. Pure, like the schemes. Read next: `sound.py`, `rows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from math import isfinite
from typing import Any, NoReturn, TypeVar

import numpy as np

from gradmux.orchestrator.errors import GradmuxError, SchemeFault, raised_at
from gradmux.orchestrator.schemes.asks import Adds, BacksUp, Call, Following, Patient, Place, Stretches
from gradmux.orchestrator.schemes.rows import Product, Rows, amplification
from gradmux.orchestrator.schemes.scheme import (
    MAX_RESIDUAL,
    Assignment,
    BoolArray,
    Decoding,
    FloatArray,
    Key,
    Scheme,
    StragglerModel,
    Task,
)
from gradmux.orchestrator.schemes.sound import Bounds, Mistake, Soundness, number, whole

MEMBERS = ("name", "workers", "jobs", "rounds", "delay", "exact", "overlapping", "binary", "chunk_sizes")
METHODS = ("assign", "heard", "decodable", "may_start", "end_round", "decode", "estimate", "wanted", "keeps")
SIZES_SUM = 1e-9
"""chunk sizes may miss 1 by this much"""
NAMED = 3
"""chunks, or workers of a chunk, that a message names at most"""
Answer = TypeVar("Answer")


class Checked:
    """`Scheme` around another one; the fixed members are read once and stay."""

    def __init__(self, scheme: Scheme, model: Callable[[int], int] | None = None) -> None:
        """`model`: which model a job is of, where results of earlier jobs may be combined.

        Raises: SchemeFault for what is wrong before any round.
        """
        self.inner, self._model = scheme, model
        self.name = name = str(getattr(scheme, "name", type(scheme).__name__))
        self._require_members()
        self.workers, self.jobs, self.rounds, self.delay = self._numbers()
        self.overlapping, self.binary = bool(scheme.overlapping), bool(scheme.binary)
        self.reuses_results = bool(getattr(scheme, "reuses_results", False))
        self.chunk_sizes = _chunk_sizes(name, scheme.chunk_sizes, empty=hasattr(scheme, "passes"))
        self._rows = Rows(len(self.chunk_sizes))
        self._soundness, self._answered, self._hear = Soundness(), self._rows.answered, scheme.heard
        self._undecoded = set(range(self.jobs))
        self._places: dict[int, dict[int, Key]] = {}
        """job -> index -> the result that stands there"""
        self.follows = isinstance(scheme, Following)
        self.splits = self.follows and bool(getattr(scheme, "splits", True))
        self._stretches = scheme if isinstance(scheme, Stretches) else None
        self._patient = scheme if isinstance(scheme, Patient) else None
        self._placing = scheme.place if isinstance(scheme, Adds) and scheme.adds else None
        self.adds = self._placing is not None
        self.backup = self._guard("backup", lambda: scheme.backup if isinstance(scheme, BacksUp) else None)

    @classmethod
    def of(cls, scheme: Scheme, model: Callable[[int], int] | None = None) -> Checked:
        """`scheme`, checked; one that is checked already stays as it is."""
        return scheme if isinstance(scheme, Checked) else cls(scheme, model)

    @property
    def exact(self) -> bool:
        """False when decodes may be estimates."""
        return bool(self.inner.exact)

    @property
    def latest(self) -> int:
        """The round that was assigned last; -1: none."""
        return self._rows.latest

    # --- what the loop tells -----------------------------------------------------------------------

    def assign(self, t: int) -> Assignment:
        """The tasks of round t, sound in structure."""
        given = self._guard(f"assign({t})", lambda: self.inner.assign(t), round_=t)
        first = t if self.overlapping else max(0, t - self.delay)
        bounds = Bounds(self.workers, len(self.chunk_sizes), first, min(t, self.jobs - 1), self.binary)
        try:
            sound = self._soundness.of(given, bounds)
        except Mistake as mistake:
            self._fault(f"round {t}", str(mistake))
        self._rows.assigned(t, sound)
        return sound

    def stretch(self, model: int, left: int) -> int:
        """K of the job that begins now: 1, unless the scheme says otherwise."""
        asked = self._stretches
        if asked is None:
            return 1
        steps = self._guard(f"stretch({model}, {left})", lambda: asked.stretch(model, left))
        if type(steps) is not int or steps < 1:
            self._fault(f"model {model}", f"stretch must be a whole number of steps, 1 or more, got {steps!r}")
        return steps

    def patience_s(self, t: int) -> float | None:
        """How long round t may last before what it waits for is invoked once more; None: by no such rule."""
        asked = self._patient
        if asked is None:
            return None
        limit_s = self._guard(f"patience_s({t})", lambda: asked.patience_s(t), round_=t)
        try:
            limit_s = None if limit_s is None else number(limit_s, "patience_s")
        except Mistake as mistake:
            self._fault(f"round {t}", str(mistake))
        if limit_s is not None and limit_s < 0:
            self._fault(f"round {t}", f"patience_s is {limit_s:g}, but must not be negative")
        return limit_s

    def heard(self, key: Key) -> None:
        """The result has arrived."""
        self._answered[key[0]].add(key)
        try:
            self._hear(key)
        except Exception as error:
            self._raised(error, f"heard({_named(key)})", key.round)

    def skipped(self, key: Key) -> None:
        """The worker found nothing new to send."""
        self._guard(f"skipped({_named(key)})", lambda: self.inner.skipped(key), round_=key.round)

    def end_round(self, t: int) -> tuple[int, ...]:
        """The jobs due now."""
        due = self._guard(f"end_round({t})", lambda: self.inner.end_round(t), round_=t)
        if not isinstance(due, Collection):
            self._fault(f"round {t}", f"end_round gave {due!r}, not a tuple of jobs")
        for job in due:
            if job not in range(self.jobs):
                self._fault(f"round {t}", f"end_round says that job {job!r} is due, but there are {self.jobs} jobs")
        return tuple(int(job) for job in due)

    def began(self, call: Call, at_s: float) -> None:
        """An invocation is on its way; only a scheme that `follows` hears of it."""
        if isinstance(self.inner, Following):
            following = self.inner
            self._guard("began", lambda: following.began(call, at_s), round_=call.round)

    def ended(self, call: Call, at_s: float, answered: bool) -> None:
        """It came back."""
        if isinstance(self.inner, Following):
            following = self.inner
            self._guard("ended", lambda: following.ended(call, at_s, answered), round_=call.round)

    # --- what the loop asks ------------------------------------------------------------------------

    def decodable(self, job: int) -> bool:
        """Do the results heard until now suffice?"""
        try:
            return self._yes_or_no(self.inner.decodable(job), "decodable", job)
        except Exception as error:
            self._raised(error, f"decodable({job})")

    def may_start(self, t: int) -> bool:
        """May round t follow now?"""
        try:
            return self._yes_or_no(self.inner.may_start(t), "may_start", t)
        except Exception as error:
            self._raised(error, f"may_start({t})")

    def wanted(self, t: int) -> tuple[int, ...]:
        """Workers of round t whose answer would help."""
        wanted = self._guard(f"wanted({t})", lambda: tuple(self.inner.wanted(t)), round_=t)
        asked = self._rows.asked(t)
        for worker in wanted:
            if asked is not None and worker not in asked:
                self._fault(f"round {t}", f"wanted names worker {worker!r}, which has no task in this round")
        return wanted

    def keeps(self) -> frozenset[Key]:
        """Results that a later decode may use."""
        kept = self._guard("keeps", self.inner.keeps)
        if not isinstance(kept, Set):
            self._fault(self._now(), f"keeps gave {type(kept).__name__}, not a frozenset of Key")
        return frozenset(kept)

    def needs_weights(self) -> frozenset[int]:
        """Jobs whose weights a later round may refer to."""
        if not hasattr(self.inner, "needs_weights"):
            return frozenset()
        return frozenset(self._guard("needs_weights", self.inner.needs_weights))

    def place(self, key: Key) -> Place | None:
        """Where a result stands in the sum of its job; no two at the same place."""
        assert self._placing is not None, "asked only where `adds`"
        try:
            place = self._placing(key)
        except Exception as error:
            self._raised(error, f"place({_named(key)})", key.round)
        if place is None:
            return None
        task, taken = self._rows.task(key), self._places.setdefault(place.job, {})
        if not 0 <= place.index < place.count or taken.setdefault(place.index, key) != key:
            self._fault(
                f"round {key.round}", f"{_named(key)} cannot stand at {place}, which is taken or does not exist"
            )
        if task is not None and task.job != place.job:
            self._fault(
                f"round {key.round}", f"{_named(key)} is of job {task.job}, but its place is in job {place.job}"
            )
        return place

    def straggler_model(self, name: str) -> StragglerModel:
        """The declared model by name."""
        model = self._guard("straggler_model", lambda: self.inner.straggler_model(name))
        return _GuardedModel(self, model)

    # --- decodes -----------------------------------------------------------------------------------

    def decode(self, job: int) -> Decoding:
        """The weights of a decodable job, with the figures that follow from them.

        Raises: SchemeFault when a scheme that calls itself exact gives weights that are not.
        """
        decoding = self._weighed(job, self._guard(f"decode({job})", lambda: self.inner.decode(job), job=job))
        if self.exact and not decoding.residual <= MAX_RESIDUAL:
            self._blame(job, decoding)
        self._done(job)
        return decoding

    def estimate(self, job: int) -> Decoding:
        """The least-squares decode of what was heard; it stays to be decoded."""
        return self._weighed(job, self._guard(f"estimate({job})", lambda: self.inner.estimate(job), job=job))

    def estimated(self, job: int) -> Decoding:
        """The estimate that is applied instead of a decode."""
        decoding = self.estimate(job)
        self._done(job)
        return decoding

    def _weighed(self, job: int, decoding: object) -> Decoding:
        """`decoding`, its weights plain and of answers that came; residual, amplification and missing as they are."""
        if not isinstance(decoding, Decoding) or not isinstance(decoding.weights, Mapping):
            self._fault(self._of(job), f"decode gave {type(decoding).__name__}, not a Decoding with weights by Key")
        weights = self._plain_weights(job, decoding.weights)
        product = self._rows.product_of(self._answering(job, weights), weights)
        missing = product.missing(self.chunk_sizes)
        return replace(
            decoding,
            weights=weights,
            residual=product.residual,
            amplification=self._amplification(decoding, product),
            missing=max(missing, decoding.missing) if self.reuses_results else missing,
        )

    def _amplification(self, decoding: Decoding, product: Product) -> float:
        """At least what follows from the weights; parts that are decoded one by one may be noisier, as stated."""
        stated = decoding.amplification if decoding.amplification >= 0 else 0.0
        return max(float(stated), amplification(product, len(decoding.weights), self.workers))

    def _plain_weights(self, job: int, given: Mapping[Any, Any]) -> Mapping[Key, float]:
        values = set(given.values())
        if set(map(type, given)) <= {Key} and set(map(type, values)) <= {float} and all(map(isfinite, values)):
            return given
        try:
            return {
                Key(*(whole(part, f"a part of {key!r}") for part in key)): number(of, f"the weight of {_named(key)}")
                for key, of in given.items()
            }
        except (Mistake, TypeError) as error:
            self._fault(self._of(job), f"{error}" if isinstance(error, Mistake) else f"a weight is not by Key: {error}")

    def _answering(self, job: int, weights: Mapping[Key, float]) -> list[Task]:
        """The tasks of its results: of answers that came, for this job; a sum on arrival takes each once."""
        try:
            tasks = self._rows.tasks(weights.keys())
        except (KeyError, IndexError):
            key = next(key for key in weights if not self._rows.has(key))
            asked = "was never asked for" if self._rows.task(key) is None else "has not come"
            self._fault(self._of(job), f"a weight is for {_named(key)}, whose answer {asked}")
        if {task.job for task in tasks} != {job}:
            self._require_reusable(job, weights, tasks)
        if (self.adds or self.binary) and not set(weights.values()) <= {1.0}:
            self._require_ones(job, weights)
        return tasks

    def _require_reusable(self, job: int, weights: Mapping[Key, float], tasks: Sequence[Task]) -> None:
        """Results of other jobs only where `reuses_results`, earlier ones of the same model."""
        for key, task in zip(weights, tasks, strict=True):
            if task.job != job and not self._reused(task.job, job):
                self._fault(self._of(job), f"a weight is for {_named(key)}, whose task was of job {task.job}")

    def _require_ones(self, job: int, weights: Mapping[Key, float]) -> None:
        """`adds` promises weights of 1, `binary` weights of 0 or 1."""
        for key, weight in weights.items():
            if weight != 1.0 and (self.adds or weight != 0.0):
                promise = "`adds` promises 1" if self.adds else "binary = True promises 0 or 1"
                self._fault(self._of(job), f"{_named(key)} has weight {weight:g}, but {promise}")

    def _reused(self, of: int, job: int) -> bool:
        same = self._model is None or self._model(of) == self._model(job)
        return self.reuses_results and of < job and same

    def _blame(self, job: int, decoding: Decoding) -> NoReturn:
        """Names the chunks that do not count once, and whose answers count them."""
        row = self._rows.product(decoding.weights).row
        wrong = np.argsort(-np.abs(row - 1.0), kind="stable")[:NAMED]
        told = [self._counts(int(c), row[c], decoding) for c in sorted(wrong) if abs(row[c] - 1.0) > MAX_RESIDUAL]
        self._fault(
            self._of(job),
            f"weights x rows miss the gradient by {decoding.residual:.1e}: {'; '.join(told)}; "
            "mend the tasks or the weights, or set exact = False",
        )

    def _counts(self, chunk: int, times: float, decoding: Decoding) -> str:
        keys = self._rows.of_chunk(chunk, decoding.weights)
        whose = ", ".join(_named(key) for key in keys[:NAMED]) + (", ..." if len(keys) > NAMED else "")
        return f"chunk {chunk} counts {times:.4g} times instead of once ({whose or 'in no answer that is used'})"

    def _done(self, job: int) -> None:
        """What no later decode can use is forgotten."""
        self._undecoded.discard(job)
        self._places.pop(job, None)
        if self.overlapping:
            kept = set(self._rows.rounds()) - {job}
        else:
            oldest = min(self._undecoded, default=self._rows.latest)
            kept = {t for t in self._rows.rounds() if t >= oldest}
        if self.reuses_results:
            kept |= {key.round for key in self.keeps()}
        self._rows.keep(kept)

    # --- faults ------------------------------------------------------------------------------------

    def stuck(self, t: int, asked: int, jobs: Collection[int]) -> NoReturn:
        """All `asked` workers of round t have answered, and it still does not go on."""
        lacks = f"job {', '.join(map(str, jobs))} is not decodable" if jobs else f"may_start({t + 1}) is false"
        came = f"all {asked} workers have answered" if asked else "it assigns no task to any worker"
        self._fault(f"round {t}", f"{came}, but {lacks} and nothing is in flight: it cannot go on")

    def fault(self, t: int, what: str) -> NoReturn:
        """What the loop found wrong in round t."""
        self._fault(f"round {t}", what)

    def _guard(
        self, asked: str, ask: Callable[[], Answer], *, round_: int | None = None, job: int | None = None
    ) -> Answer:
        try:
            return ask()
        except Exception as error:
            self._raised(error, asked, round_, job)

    def _raised(self, error: Exception, asked: str, round_: int | None = None, job: int | None = None) -> NoReturn:
        """What is ours and speaks for itself goes on; all else is the scheme's."""
        if isinstance(error, GradmuxError):
            raise error
        where = self._now() if round_ is None else f"round {round_}"
        if job is not None:
            where = self._of(job)
        also = ""
        if job is not None and asked.startswith("decode") and self.inner.decodable(job):
            also = ", although it says that it is decodable"
        said = str(error).partition("\n")[0]
        raised = f"{asked} raised {type(error).__name__}" + (f": {said}" if said else "")
        raise SchemeFault(
            self.name, where, f"{raised} ({raised_at(error)}){also}; -v shows the whole traceback"
        ) from error

    def _yes_or_no(self, answer: object, asked: str, about: int) -> bool:
        if not isinstance(answer, (bool, np.bool_)):
            self._fault(self._now(), f"{asked}({about}) gave {answer!r}, not True or False")
        return bool(answer)

    def _now(self) -> str:
        return f"round {self._rows.latest}" if self._rows.latest >= 0 else ""

    def _of(self, job: int) -> str:
        return f"round {self._rows.latest}, job {job}"

    def _fault(self, where: str, what: str) -> NoReturn:
        raise SchemeFault(self.name, where, what)

    def _require_members(self) -> None:
        missing = [name for name in (*MEMBERS, *METHODS) if not hasattr(self.inner, name)]
        if missing:
            self._fault("", f"{type(self.inner).__name__} has no {', no '.join(missing)} (see schemes/scheme.py)")

    def _numbers(self) -> tuple[int, int, int, int]:
        """(n, J, R, T)"""
        scheme = self.inner
        try:
            workers, jobs, rounds, delay = (
                whole(getattr(scheme, name), name) for name in ("workers", "jobs", "rounds", "delay")
            )
        except Mistake as mistake:
            self._fault("", str(mistake))
        if workers < 1 or jobs < 1 or delay < 0 or rounds < jobs:
            self._fault(
                "",
                f"workers = {workers}, jobs = {jobs}, rounds = {rounds}, delay = {delay}: there must be at least 1 "
                "worker, 1 job, as many rounds as jobs, and no negative delay",
            )
        return workers, jobs, rounds, delay


class _GuardedModel:
    """A straggler model whose faults are its scheme's."""

    def __init__(self, checked: Checked, model: StragglerModel) -> None:
        self._checked, self._model = checked, model

    def admits(self, late: BoolArray) -> bool:
        return bool(self._checked._guard("admits", lambda: self._model.admits(late)))

    def commit(self, late: BoolArray) -> None:
        self._checked._guard("commit", lambda: self._model.commit(late))


def _chunk_sizes(name: str, given: object, *, empty: bool) -> FloatArray:
    """(chunks,) as they are from now on; some may be `empty`, where they are whole passes. Raises: SchemeFault."""
    try:
        sizes = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SchemeFault(name, "", f"chunk_sizes is not an array of numbers: {error}") from None
    if sizes.ndim != 1 or not sizes.size:
        raise SchemeFault(name, "", f"chunk_sizes has shape {sizes.shape}, but must be (chunks,)")
    wrong = np.flatnonzero(~(np.isfinite(sizes) & ((sizes > 0) | (empty & (sizes == 0)))))
    if wrong.size:
        raise SchemeFault(name, "", f"chunk {wrong[0]} is {sizes[wrong[0]]:g} of the batch, but must be above 0")
    if abs(sizes.sum() - 1.0) > SIZES_SUM:
        raise SchemeFault(name, "", f"its {sizes.size} chunk_sizes sum to {sizes.sum():.10g}, but must sum to 1")
    sizes.setflags(write=False)
    return sizes


def _named(key: Any) -> str:
    """`worker 3 in round 0`, and its slot where that is not the first."""
    round_, worker, slot = key
    return f"worker {worker} in round {round_}" + (f", slot {slot}" if slot else "")
