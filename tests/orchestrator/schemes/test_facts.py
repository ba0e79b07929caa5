"""Every scheme's facts are those of the scheme that it builds, for whatever parameters fit; and what fits is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.evaluate import Batch
from gradmux.orchestrator.schemes import multiplexed, registry
from gradmux.orchestrator.schemes.facts import Facts
from gradmux.orchestrator.schemes.registry import build_scheme, get
from gradmux.orchestrator.schemes.scheme import Assignment, Context, Key, Scheme, SchemeInfo, Slots

TOLD = [name for name in sorted(registry.OURS) if get(name).facts is not None]
CODES = ("fractional", "cyclic", "dft")
OF_N = {"pipeline": "per_job", "stretch": "copies"}
"""the parameter that is n, where it is one"""
MOST = 9
JOBS, MODELS = 6, 4


@st.composite
def batches(draw: st.DrawFn, info: SchemeInfo) -> Batch:
    """One parameter set, from any whole numbers: most fit, some do not."""
    workers = draw(st.integers(1, MOST))
    values: dict[str, np.ndarray] = {}
    for parameter in info.parameters:
        if parameter.kind is int:
            values[parameter.name] = np.array([draw(st.integers(-1, MOST + 1))])
        elif parameter.kind is float:
            values[parameter.name] = np.array([1.0])
    if info.name in OF_N:
        values[OF_N[info.name]] = np.array([workers])
    coded = any(parameter.name == "code" for parameter in info.parameters)
    return Batch(info.name, workers, values, 1, draw(st.sampled_from(CODES)) if coded else None)


def built(batch: Batch) -> Scheme:
    context = Context(batch.workers, jobs=JOBS, models=MODELS, concurrency=MOST, distances=Drifting())
    return build_scheme(batch.scheme, batch.params(0), context)


class Drifting:
    """Weights and gradients that are never where they were."""

    def weights(self, job: int, other: int) -> float:
        return 1.0

    def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
        return 1.0


def played(scheme: Scheme) -> Iterator[Assignment]:
    """Its rounds, in which all workers answer."""
    for t in range(scheme.rounds):
        tasks = scheme.assign(t)
        yield tasks
        for worker, slots in tasks.items():
            for slot in (slot for slot, task in enumerate(slots) if task is not None):
                scheme.heard(Key(t, worker, slot))
        for job in (job for job in scheme.end_round(t) if scheme.decodable(job)):
            scheme.decode(job)


def loads_by_job(slots: Slots, scheme: Scheme) -> dict[int, float]:
    """Fraction of its batch that a worker processes for each job, in all messages."""
    found: dict[int, float] = {}
    for task in slots:
        if task is not None:
            found[task.job] = found.get(task.job, 0.0) + task.load(scheme.chunk_sizes)
    return found


def test_all_schemes_tell_but_the_one_that_sizes_itself() -> None:
    assert registry.OURS - set(TOLD) == {"pipeline-auto"}


@pytest.mark.parametrize("name", TOLD)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_facts_are_those_of_the_scheme_built(name: str, data: st.DataObject) -> None:
    batch = data.draw(batches(get(name)))
    try:
        scheme = built(batch)
    except ConfigError:
        assume(batch.code != "dft")  # which does not exist for all n and s
        assume(name != "stretch")  # steps, which change no fact
        assert not batch.fits()[0], "refused"
        return
    assert batch.fits()[0], "built"
    assert batch.workers == scheme.workers
    assert batch.delay()[0] == scheme.delay
    if name == "stretch":
        assert batch.task_load()[0] == batch.ints("steps")[0]
        return
    assert batch.parts()[0] == len(scheme.chunk_sizes)
    rows = [slots for tasks in played(scheme) for slots in tasks.values()]
    by_job = [load for slots in rows for load in loads_by_job(slots, scheme).values()]
    assert max(by_job) == pytest.approx(batch.task_load()[0])
    messages = 1 + max(task.message for slots in rows for task in slots if task is not None)
    assert max(len(slots) for slots in rows) == batch.slots()[0] * messages
    code = getattr(scheme, "code", None)
    if code is not None:
        assert (batch.tolerance()[0], batch.chunks()[0]) == (code.tolerance, code.chunks)


@pytest.mark.parametrize("name", TOLD)
def test_facts_are_vectorised(name: str) -> None:
    """Of many sets at once they are those of each."""
    rng = np.random.default_rng(1)
    info = get(name)
    names = [parameter.name for parameter in info.parameters if parameter.kind is int]
    batch = Batch(name, 7, {each: rng.integers(2, 7, 30) for each in names}, 30, "cyclic")
    for of in (batch.tolerance, batch.chunks, batch.parts, batch.slots, batch.delay, batch.fits, batch.task_load):
        whole = of()
        each = [getattr(batch.take(np.array([place])), of.__name__)()[0] for place in range(30)]
        np.testing.assert_array_equal(whole, each)


@pytest.mark.parametrize("code", CODES)
def test_multiplexed_without_coded_groups(code: str) -> None:
    """lambda = n: all is private, nothing divides by the groups that are not there."""
    values = {"burst": np.array([1, 2]), "window": np.array([2, 4]), "max_stragglers": np.array([5, 5])}
    batch = Batch(multiplexed.INFO.name, 5, values, 2, code)
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(batch.chunks(), [0, 0])
        np.testing.assert_array_equal(batch.parts(), [5, 15])
        np.testing.assert_allclose(batch.load(), [2 / 5, 5 / 15])
    for column in range(2):
        layout = multiplexed.Layout(5, *(int(batch.ints(name)[column]) for name in ("burst", "window")), None)
        assert layout.private_size == batch.task_load()[column]
        assert len(layout.chunk_sizes()) == batch.parts()[column]


def test_a_scheme_that_says_nothing_is_not_evaluated() -> None:
    silent = Batch("pipeline-auto", 4, {}, 1)
    with pytest.raises(ConfigError, match="says nothing of its loads beforehand"):
        silent.load()
    assert isinstance(get("uncoded").facts, Facts)
