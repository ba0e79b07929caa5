"""Schemes are checked, not trusted: a mistake of any kind is one line that names scheme, round, worker and chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gradmux.orchestrator.errors import SchemeFault
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.record import MemoryRecord
from gradmux.orchestrator.rehearsal import rehearse
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes import registry
from gradmux.orchestrator.schemes.checked import Checked
from gradmux.orchestrator.schemes.codes.fractional import FractionalReception
from gradmux.orchestrator.schemes.drawing import context_of, draw
from gradmux.orchestrator.schemes.multiplexed import Multiplexed
from gradmux.orchestrator.schemes.registry import REGISTRY, build_scheme
from gradmux.orchestrator.schemes.scheme import Assignment, Context, Key, Scheme, SchemeInfo, Task
from gradmux.orchestrator.simulate import NoTrainer, SimulationOptions, simulate
from tests.orchestrator.schemes.mistakes import BEFORE, LATER, REHEARSED, Plain, info, name_of
from tests.orchestrator.schemes.playing import Play, combined_row
from tests.orchestrator.schemes.strategies import NAMES

DELAYS_S = np.random.default_rng(0).uniform(0.5, 1.5, (10, 6))


@pytest.fixture
def registered() -> Iterator[None]:
    """The schemes with a mistake, for one test."""
    for made in (Plain, *BEFORE, *LATER, *REHEARSED):
        registry.register(info(made))
    yield
    for made in (Plain, *BEFORE, *LATER, *REHEARSED):
        del REGISTRY[name_of(made)]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("made", [*BEFORE, *LATER], ids=lambda made: made.__name__)
def test_a_mistake_is_one_line_and_its_exit_code_says_whether_a_worker_was_invoked(made: type[Plain]) -> None:
    with pytest.raises(SchemeFault) as caught:
        played(build_scheme(name_of(made), {}, Context(6, 6)))
    text = str(caught.value)
    assert text.startswith(f"scheme {name_of(made)}")
    assert {**BEFORE, **LATER}[made] in text
    assert "\n" not in text
    assert caught.value.exit_code == (2 if made in BEFORE else 1)
    assert caught.value.state == "failed"


def played(scheme: Scheme) -> None:
    """The loop alone, as it runs with workers."""
    plan = JobPlan(1, 6)
    fleet = ProfileFleet(DelayTable(DELAYS_S, 6), LoadModel())
    rounds = Rounds(scheme, plan, Earliest(), Limits())
    Loop(plan=plan, rounds=rounds, fleet=fleet, trainer=NoTrainer(), recorder=MemoryRecord()).run()


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("made", [*BEFORE, *LATER, *REHEARSED], ids=lambda made: made.__name__)
def test_a_plugin_is_rehearsed_before_anything_is_invoked(made: type[Plain]) -> None:
    with pytest.raises(SchemeFault) as caught:
        simulate(DELAYS_S, name_of(made), {}, SimulationOptions(jobs=6))
    assert {**BEFORE, **LATER, **REHEARSED}[made] in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", NAMES)
def test_our_own_schemes_pass_the_rehearsal(name: str) -> None:
    sample = REGISTRY[name].sample
    assert sample is not None
    assert rehearse(name, sample.params, context_of(sample)).decodes > 0


def test_a_scheme_that_lets_go_of_what_it_needs_is_seen_in_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Multiplexed, "weights_known", False)
    monkeypatch.setattr(Multiplexed, "keeps", lambda scheme: frozenset())
    with pytest.raises(SchemeFault, match=r"round \d+: worker \d+'s answer is used by a decode, but keeps\(\) let go"):
        rehearse("m-sgc", {"B": 1, "W": 2, "lambda": 1}, Context(4, 10))


def test_places_that_are_shared_are_seen_in_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FractionalReception, "place", lambda reception, worker: (0, 4))
    with pytest.raises(SchemeFault, match=r"worker \d in round 0 cannot stand at Place\(job=0, index=0, count=4\)"):
        rehearse("uncoded", {}, Context(4, 10))


@pytest.mark.usefixtures("registered")
def test_the_scheme_that_they_were_made_of_is_sound() -> None:
    assert simulate(DELAYS_S, name_of(Plain), {}, SimulationOptions(jobs=6)).max_residual == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_of_each_scheme_passes_the_same_check(name: str) -> None:
    scheme_info = REGISTRY[name]
    assert scheme_info.sample is not None
    scheme = build_scheme(name, scheme_info.sample.params, context_of(scheme_info.sample))
    assert draw(scheme, scheme_info.sample).rounds


class Numpy(Plain):
    """All numbers are numpy's."""

    def assign(self, t: int) -> Assignment:
        given = super().assign(t).items()
        ones = np.ones(1)
        return {
            np.int64(w): (replace(slots[0], chunks=np.array([w]), coefficients=ones),)  # type: ignore[type-var, misc]
            for w, slots in given
        }


def test_numpy_numbers_become_plain_ones() -> None:
    checked = Checked(Numpy(Context(3, 1)))
    given = checked.assign(0)
    task = given[1][0]
    assert task == Task(0, (1,), (1.0,))
    assert type(task.chunks[0]) is int
    for worker in range(3):
        checked.heard(Key(0, worker, 0))
    assert checked.decode(0).weights == {Key(0, worker, 0): 1.0 for worker in range(3)}


def test_nothing_is_kept_of_rounds_that_are_over_nor_of_answers_that_come_too_late() -> None:
    checked = Checked(build_scheme("gc", {"stragglers": 1}, Context(4, 200)))
    for t in range(200):
        checked.assign(t)
        for worker in range(3):
            checked.heard(Key(t, worker, 0))
        checked.end_round(t)
        checked.decode(t)
        checked.heard(Key(t, 3, 0))
    assert len(checked._rows.answered) <= 2
    assert len(checked._rows.rounds()) <= 2


class Tampering(Plain):
    """States figures that do not follow from its weights."""

    exact = False
    weights_known = False

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.binary = False

    def decode(self, job):  # type: ignore[no-untyped-def]
        found = super().decode(job)
        weights = {key: 1.0 if key.worker else 1.5 for key in found.weights}
        return replace(found, weights=weights, residual=0.0, missing=0.0, amplification=0.0)


def test_what_counts_is_what_follows_from_the_weights_and_not_what_the_scheme_states() -> None:
    checked = Checked(Tampering(Context(4, 1)))
    checked.assign(0)
    for worker in range(4):
        checked.heard(Key(0, worker, 0))
    decoding = checked.decode(0)
    assert decoding.residual == pytest.approx(0.5)
    assert decoding.missing == pytest.approx(0.25 / 4)
    assert decoding.amplification == pytest.approx(np.sqrt((3 + 2.25) / 4))


@pytest.mark.parametrize(
    ("name", "params"),
    [("gc", {"s": 2, "code": "cyclic"}), ("m-sgc", {"B": 1, "W": 3, "lambda": 2}), ("gc-partial", {"s": 1})],
)
def test_the_product_is_that_of_an_independent_loop_over_all_coefficients(name: str, params: dict[str, int]) -> None:
    scheme = build_scheme(name, params, Context(6, 4))
    play = Play(scheme)
    checked = Checked(build_scheme(name, params, Context(6, 4)))
    for t in range(scheme.rounds):
        late = [t % 6] if t < 4 and name != "gc-partial" else []
        assert checked.assign(t).keys() == set(play.start())
        for worker in play.invoked[t]:
            if worker not in late:
                play.answer([worker])
                for key in play.keys(t, worker):
                    checked.heard(key)
        for job in play.end():
            decoding = checked.decode(job)
            row = combined_row(scheme.chunk_sizes, play.tasks, play.decoded[job])
            assert decoding.residual == pytest.approx(np.abs(row - 1).max(), abs=1e-12)
            assert decoding.weights == play.decoded[job].weights
        checked.end_round(t)
    assert len(play.decoded) == 4


def test_what_is_no_scheme_says_what_it_lacks() -> None:
    with pytest.raises(SchemeFault, match="Context has no name, no rounds, no delay"):
        Checked(Context(3, 1))  # type: ignore[arg-type]


def test_a_scheme_is_registered_once_and_its_class_may_serve_another_name() -> None:
    other: SchemeInfo = replace(REGISTRY["uncoded"], name="uncoded-too")
    registry.register(other)
    try:
        assert build_scheme("uncoded-too", {}, Context(2, 1)).name == "uncoded-too"
    finally:
        del REGISTRY["uncoded-too"]
