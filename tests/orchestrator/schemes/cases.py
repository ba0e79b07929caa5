"""Random cases of every scheme of the registry, lazy and approximate ones included, and a way to play them.

A scheme that is registered without a line in CASES fails a test: nothing is registered that no property was tried on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import strategies as st

from gradmux.orchestrator.schemes.drawing import MadeUp
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context, Decoding, Key, Scheme
from tests.orchestrator.schemes.playing import Play

Values = dict[str, int | float | str]


@dataclass(frozen=True)
class Case:
    """One scheme with its parameters; `build` makes a new object of it each time."""

    name: str
    workers: int
    jobs: int
    params: Values = field(default_factory=dict)
    models: int = 1
    concurrency: int | None = None
    seed: int = 0

    def build(self, passes: int | None = None) -> Scheme:
        """A new run of this scheme; distances are made up."""
        context = Context(
            workers=self.workers,
            jobs=self.jobs,
            models=self.models,
            seed=self.seed,
            distances=MadeUp(self.models, self.workers),
            concurrency=self.concurrency,
            rates=(1.0,) * self.models,
            passes=passes,
        )
        return build_scheme(self.name, self.params, context)


class Session(Play):
    """A run whose workers may also say that nothing has changed, and answer message by message."""

    def hear(self, keys: Iterable[Key], unchanged: Iterable[Key] = ()) -> None:
        """These results arrive, in this order; those in `unchanged` say "skipped" where their task allows it."""
        lazy = set(unchanged)
        for key in keys:
            if key in lazy and self.tasks[key].skip is not None:
                self.scheme.skipped(key)
            else:
                self.scheme.heard(key)

    def open_keys(self) -> list[Key]:
        """All results that the open round owes."""
        return [key for key in self.tasks if key.round == self.t]

    def close(self) -> tuple[int, ...]:
        """Closes the open round and decodes what is due, unchecked."""
        due = self.scheme.end_round(self.t)
        self.decoded |= {job: self.scheme.decode(job) for job in due}
        return due

    def finish(self) -> None:
        """What is wanted answers, until the round may end."""
        wanted = set(self.scheme.wanted(self.t))
        self.hear(key for key in self.open_keys() if key.worker in wanted)


def check(session: Session, job: int, decoding: Decoding) -> None:
    """The decode of `job` gives one for each chunk, or misses it by what `residual` and `missing` say."""
    scheme = session.scheme
    error = session.combined_row(decoding) - 1.0
    noise = 1e-9 * max(1.0, decoding.amplification)
    assert decoding.residual == pytest.approx(float(np.abs(error).max()), abs=noise)
    assert decoding.missing == pytest.approx(float(scheme.chunk_sizes @ error**2), abs=noise)
    if scheme.exact or scheme.reuses_results:
        assert decoding.residual <= noise
    if not scheme.reuses_results:
        assert all(session.tasks[key].job == job for key in decoding.weights)
    if scheme.binary:
        assert set(decoding.weights.values()) <= {1.0}
        assert all(set(task.coefficients) <= {1.0} for task in session.tasks.values())


def estimate_error(session: Session) -> float:
    """What the least-squares combination of the answers lacks; it must say so truly."""
    estimate = session.scheme.estimate(0)
    error = session.combined_row(estimate) - 1.0
    lacks = float(session.scheme.chunk_sizes @ error**2)
    assert estimate.missing == pytest.approx(lacks, abs=1e-9)
    return lacks


@st.composite
def _coded(draw: st.DrawFn, name: str, extra: Mapping[str, st.SearchStrategy[int]] | None = None) -> Case:
    """A scheme over n workers that takes s, and whatever `extra` says."""
    workers = draw(st.integers(1, 8))
    params: Values = {"stragglers": draw(st.integers(0, workers - 1))}
    params |= {key: draw(values) for key, values in (extra or {}).items()}
    return Case(name, workers, draw(st.integers(1, 4)), params, seed=draw(st.integers(0, 3)))


@st.composite
def _any_code(draw: st.DrawFn, case: Case) -> Case:
    """The same case with a code: dft only where it exists."""
    odd = (case.workers - int(case.params["stragglers"])) % 2 == 1 or case.params["stragglers"] == 0
    code = draw(st.sampled_from(["fractional", "cyclic", *(["dft"] if odd else [])]))
    return Case(case.name, case.workers, case.jobs, {**case.params, "code": code}, seed=case.seed)


@st.composite
def _counted(draw: st.DrawFn, name: str, letter: str) -> Case:
    """A scheme with one parameter between 1 and n."""
    workers = draw(st.integers(1, 8))
    params: Values = {letter: draw(st.integers(1, workers))}
    return Case(name, workers, draw(st.integers(1, 4)), params, seed=draw(st.integers(0, 3)))


@st.composite
def _agc(draw: st.DrawFn) -> Case:
    case = draw(_counted("agc", "responses"))
    flag = draw(st.sampled_from(["false", "true"]))
    params: Values = {**case.params, "stragglers": draw(st.integers(0, case.workers - 1)), "unbiased": flag}
    return Case("agc", case.workers, case.jobs, params, seed=case.seed)


@st.composite
def _sequential(draw: st.DrawFn, name: str) -> Case:
    """B, W and lambda that fit; of sr-sgc those with s < n."""
    burst, times = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    window = times * burst + 1 if name == "sr-sgc" else burst + times
    workers = draw(st.integers(2, 6))
    most = draw(st.integers(0, workers - 1))
    code = draw(st.sampled_from(["fractional", "cyclic"]))
    params: Values = {"burst": burst, "window": window, "max_stragglers": most, "code": code}
    return Case(name, workers, draw(st.integers(1, 4)), params, seed=draw(st.integers(0, 3)))


@st.composite
def _pipeline(draw: st.DrawFn) -> Case:
    case = draw(_coded("pipeline"))
    params: Values = {**case.params, "per_job": case.workers}
    return Case("pipeline", case.workers, case.jobs, params, models=2, seed=case.seed)


@st.composite
def _stretch(draw: st.DrawFn) -> Case:
    copies = draw(st.integers(1, 5))
    params: Values = {"copies": copies, "steps": draw(st.integers(1, 5))}
    return Case("stretch", copies, draw(st.integers(1, 6)), params, models=2)


@st.composite
def _auto(draw: st.DrawFn) -> Case:
    workers, jobs, seed = draw(st.integers(1, 8)), draw(st.integers(1, 20)), draw(st.integers(0, 3))
    return Case("pipeline-auto", workers, jobs, models=2, concurrency=2 * workers, seed=seed)


@st.composite
def _lazy(draw: st.DrawFn, name: str) -> Case:
    """Thresholds at which some shards are asked and some are not."""
    workers = draw(st.integers(2, 6))
    params: Values = {"D": draw(st.integers(1, 3)), "xi": draw(st.sampled_from([0.1, 1.0, 10.0]))}
    if name == "g-lag":
        params["stragglers"] = draw(st.integers(0, workers - 1))
    if name == "lagc":
        groups = draw(st.integers(1, workers))
        params |= {"groups": groups, "stragglers": draw(st.integers(0, workers // groups - 1))}
        params["code"] = draw(st.sampled_from(["fractional", "cyclic"]))
    return Case(name, workers, draw(st.integers(1, 6)), params, models=draw(st.integers(1, 2)))


@st.composite
def _plain(draw: st.DrawFn, name: str) -> Case:
    return Case(name, draw(st.integers(1, 8)), draw(st.integers(1, 4)))


CASES: Mapping[str, st.SearchStrategy[Case]] = {
    "uncoded": _plain("uncoded"),
    "fastest-k": _counted("fastest-k", "responses"),
    "backup": _plain("backup"),
    "gc": _coded("gc").flatmap(_any_code),
    "gc-partial": _coded("gc-partial", {"private": st.integers(0, 2)}).flatmap(_any_code),
    "agc": _agc(),
    "sr-sgc": _sequential("sr-sgc"),
    "m-sgc": _sequential("m-sgc"),
    "pipeline": _pipeline(),
    "pipeline-auto": _auto(),
    "stretch": _stretch(),
    "grouping": _counted("grouping", "groups"),
    **{name: _lazy(name) for name in ("lag-ps", "lag-wk", "g-lag", "lagc")},
}
