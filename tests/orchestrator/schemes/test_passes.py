"""Whatever the scheme and however few passes a batch has: chunks are whole passes, and loads are what is computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradmux.orchestrator.errors import ConfigError, SchemeFault
from gradmux.orchestrator.evaluate import grids
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.schemes import registry
from gradmux.orchestrator.schemes.passes import chunk_bounds, in_passes
from gradmux.orchestrator.schemes.registry import REGISTRY, build_scheme
from gradmux.orchestrator.schemes.scheme import Context, loads_by_message
from gradmux.orchestrator.simulate import SimulationOptions, simulate
from tests.orchestrator.schemes.cases import CASES, Case, Session

SIZES = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=40).map(lambda parts: np.array(parts) / sum(parts))
PASSES = st.integers(1, 60)


def test_by_hand() -> None:
    assert chunk_bounds(np.full(3, 1 / 3), 8) == (0, 3, 5, 8)
    assert in_passes(np.full(3, 1 / 3), 8).tolist() == [3 / 8, 2 / 8, 3 / 8]


@given(sizes=SIZES, passes=PASSES)
def test_chunks_are_whole_passes_that_make_up_the_batch(sizes: NDArray[np.float64], passes: int) -> None:
    found = in_passes(sizes, passes)
    whole = np.rint(found * passes)
    assert np.allclose(found * passes, whole, rtol=0, atol=1e-9)
    assert whole.sum() == passes
    assert (np.abs(found - sizes) * passes < 1 + 1e-6).all()
    assert np.array_equal(in_passes(found, passes), found)


@pytest.mark.parametrize("name", REGISTRY)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), passes=PASSES)
def test_every_scheme_computes_whole_passes_and_decodes_as_ever(name: str, data: st.DataObject, passes: int) -> None:
    case: Case = data.draw(CASES[name])
    scheme = case.build(passes)
    sizes = scheme.chunk_sizes
    assert np.allclose(sizes * passes, np.rint(sizes * passes), rtol=0, atol=1e-9)
    assert sizes.sum() == pytest.approx(1.0, abs=1e-12)
    bounds = chunk_bounds(sizes, passes)
    session = Session(scheme)
    for _ in range(scheme.rounds):
        session.start()
        for worker in {key.worker for key in session.open_keys()}:
            slots = tuple(session.tasks[key] for key in session.open_keys() if key.worker == worker)
            computed = sum(
                (bounds[chunk + 1] - bounds[chunk]) * (1 if task.skip is None else 2)
                for task in slots
                for chunk in task.chunks
            )
            assert loads_by_message(slots, sizes)[-1] * passes == pytest.approx(computed, abs=1e-9)
        session.hear(session.open_keys())
        session.close()
    assert sorted(session.decoded) == list(range(scheme.jobs))


@pytest.mark.parametrize("scheme", ["uncoded", "gc", "sr-sgc", "m-sgc", "backup", "pipeline"])
@settings(max_examples=20, deadline=None)
@given(workers=st.integers(1, 9), passes=st.integers(1, 40), data=st.data())
def test_no_candidate_has_more_parts_than_passes_and_loads_are_those_of_the_loop_or_a_pass_more(
    scheme: str, workers: int, passes: int, data: st.DataObject
) -> None:
    for batch in grids.for_tuning(scheme, workers, models=3, max_load=workers, passes=passes):
        if not batch.size:
            continue
        column = data.draw(st.integers(0, batch.size - 1))
        assert batch.parts()[column] <= passes
        played = simulate(
            np.ones((4, workers)),
            scheme,
            batch.params(column),
            SimulationOptions(jobs=6, load=LoadModel(1.0, 0.0), passes=passes),
        )
        tasks = round(float(batch.load()[column] / batch.task_load()[column]))
        assert played.load <= batch.load()[column] + 1e-9
        assert batch.load()[column] < played.load + tasks / passes + 1e-9
        if scheme != "m-sgc":  # whose slots are not all taken in a few jobs by a worker with the most
            assert batch.load()[column] == pytest.approx(played.load, abs=1e-9)


def test_pipeline_auto_makes_no_more_groups_than_passes() -> None:
    context = Context(32, 50, models=2, concurrency=64)
    most = [build_scheme("pipeline-auto", {}, replace(context, passes=p)).chunk_sizes.size for p in (1, 3, 8, 100)]
    assert most == [1, 2, 8, 32]


def test_a_scheme_of_elsewhere_gets_whole_passes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        name, chunk_sizes = "odd", (0.3, 0.7)

    class Fixed:
        name = "fixed"

        @property
        def chunk_sizes(self) -> NDArray[np.float64]:
            return np.array([0.3, 0.7])

    for kind in (Odd, Fixed):
        info = replace(REGISTRY["uncoded"], name=kind.__name__, build=lambda *_, kind=kind: kind())
        monkeypatch.setitem(registry.REGISTRY, kind.__name__, info)
    context = Context(2, 4, passes=5)
    assert list(build_scheme("Odd", {}, context).chunk_sizes) == [0.4, 0.6]
    with pytest.raises(SchemeFault, match="multiples of 1/5"):
        build_scheme("Fixed", {}, context)


def test_no_passes_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1 pass"):
        build_scheme("uncoded", {}, Context(2, 4, passes=0))
