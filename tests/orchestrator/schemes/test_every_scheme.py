"""What every scheme must do, whatever its parameters: decode in time, count without changing, profit from answers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.schemes.asks import Adds, Place
from gradmux.orchestrator.schemes.registry import REGISTRY
from gradmux.orchestrator.schemes.scheme import Key, Scheme
from tests.orchestrator.schemes.playing import Play
from tests.orchestrator.schemes.strategies import ANY_SCHEME, MODEL_NAMES, NAMES, Setting, admitted, conform, wishes


def test_all_published_schemes_are_played_here() -> None:
    assert set(NAMES) <= set(REGISTRY)


@settings(max_examples=120)
@given(ANY_SCHEME, MODEL_NAMES, wishes())
def test_every_admitted_pattern_decodes_every_job_in_time_and_never_waits(
    setting: Setting, model_name: str, patterns: list[int]
) -> None:
    scheme = setting.build()
    play, model = Play(scheme), scheme.straggler_model(model_name)
    for t in range(scheme.rounds):
        late = conform(play, model, patterns[t % len(patterns)])
        assert scheme.may_start(t + 1)
        model.commit(late)
        assert play.end() == ((t - scheme.delay,) if t >= scheme.delay else ())
    assert sorted(play.decoded) == list(range(scheme.jobs))


@given(ANY_SCHEME)
def test_chunk_sizes_make_up_the_batch_and_all_chunks_are_given_out(setting: Setting) -> None:
    scheme = setting.build()
    assert scheme.chunk_sizes.sum() == pytest.approx(1.0, abs=1e-12)
    assert (scheme.chunk_sizes > 0).all()
    play = Play(scheme)
    for _ in range(scheme.rounds):
        play.round()
    for job in range(scheme.jobs):
        given_out = {chunk for task in play.tasks.values() if task.job == job for chunk in task.chunks}
        assert given_out == set(range(len(scheme.chunk_sizes)))


@given(ANY_SCHEME, wishes())
def test_binary_schemes_use_coefficients_and_weights_of_one(setting: Setting, patterns: list[int]) -> None:
    scheme = setting.build()
    play, model = Play(scheme), scheme.straggler_model("either")
    for t in range(scheme.rounds):
        late = conform(play, model, patterns[t % len(patterns)])
        model.commit(late)
        play.end()
    ones = all(set(task.coefficients) == {1.0} for task in play.tasks.values())
    ones &= all(set(decoding.weights.values()) == {1.0} for decoding in play.decoded.values())
    assert ones or not scheme.binary
    if setting.params.get("code", "fractional") == "fractional":
        assert scheme.binary


@settings(max_examples=60)
@given(ANY_SCHEME, st.data())
def test_predicates_change_nothing(setting: Setting, data: st.DataObject) -> None:
    scheme = setting.build()
    play = Play(scheme)
    for t in range(scheme.rounds):
        invoked = play.start()
        some = data.draw(st.sets(st.sampled_from(invoked))) if invoked else set()
        play.answer(some)
        before = pickle.dumps(scheme)
        first = _ask_everything(scheme, t)
        assert _ask_everything(scheme, t) == first
        assert pickle.dumps(scheme) == before
        play.answer(invoked)
        play.end()


def _ask_everything(scheme: Scheme, t: int) -> tuple[object, ...]:
    decodable = [scheme.decodable(job) for job in range(scheme.jobs)]
    return decodable, scheme.may_start(t + 1), scheme.wanted(t), scheme.keeps()


@settings(max_examples=60)
@given(ANY_SCHEME, st.data())
def test_more_answers_never_hurt(setting: Setting, data: st.DataObject) -> None:
    """Whatever the order, what is decodable stays so, and so does what may start; with all answers everything may."""
    scheme = setting.build()
    play = Play(scheme)
    for t in range(scheme.rounds):
        play.start()
        keys = data.draw(st.permutations([key for key in play.tasks if key.round == t]))
        could: tuple[set[int], bool] = (set(), False)
        for key in keys:
            scheme.heard(key)
            can = {job for job in range(scheme.jobs) if scheme.decodable(job)}, scheme.may_start(t + 1)
            assert could[0] <= can[0]
            assert could[1] <= can[1]
            could = can
        assert scheme.may_start(t + 1)
        play.end()


@settings(max_examples=60)
@given(ANY_SCHEME, wishes())
def test_a_repeated_answer_changes_nothing(setting: Setting, patterns: list[int]) -> None:
    once, twice = Play(setting.build()), Play(setting.build())
    model = once.scheme.straggler_model("bursty")
    for t in range(once.scheme.rounds):
        late = conform(once, model, patterns[t % len(patterns)])
        answering = [worker for worker in twice.start() if not late[worker]]
        twice.answer(answering + answering)
        assert once.scheme.keeps() == twice.scheme.keeps()
        model.commit(late)
        once.end()
        twice.end()
    assert once.decoded == twice.decoded


@settings(max_examples=60)
@given(ANY_SCHEME, wishes())
def test_a_decode_uses_only_what_keeps_named(setting: Setting, patterns: list[int]) -> None:
    scheme = setting.build()
    play, model = Play(scheme), scheme.straggler_model("either")
    for t in range(scheme.rounds):
        late = conform(play, model, patterns[t % len(patterns)])
        model.commit(late)
        kept = scheme.keeps()
        for job in play.end():
            assert set(play.decoded[job].weights) <= kept
            assert not any(play.tasks[key].job == job for key in scheme.keeps())
    assert scheme.keeps() == frozenset()


@settings(max_examples=120)
@given(ANY_SCHEME, st.data())
def test_places_are_where_the_decode_has_its_results(setting: Setting, data: st.DataObject) -> None:
    """Asked at arrival, whatever the order; and a result without a place is in no decode."""
    scheme = setting.build()
    assert isinstance(scheme, Adds)
    if not scheme.adds:
        assert not scheme.binary
        return
    play, model, places = Play(scheme), scheme.straggler_model("either"), dict[Key, Place]()
    for t in range(scheme.rounds):
        invoked = play.start()
        late = admitted(invoked, model, data.draw(st.integers(0, 2**9 - 1)), scheme.workers)
        keys = [key for worker in invoked if not late[worker] for key in play.keys(t, worker)]
        for key in data.draw(st.permutations(keys)):
            scheme.heard(key)
            place = scheme.place(key)
            if place is not None:
                places[key] = place
        assert all(scheme.place(key) in (place, None) for key, place in places.items())
        model.commit(late)
        for job in play.end():
            weights = play.decoded[job].weights
            mine = sorted((place.index, key) for key, place in places.items() if place.job == job)
            assert mine == list(enumerate(weights))
            assert {place.count for place in places.values() if place.job == job} == {len(weights)}
            assert set(weights.values()) == {1.0}
            assert all(scheme.place(key) is None for key in weights)


@settings(max_examples=60)
@given(ANY_SCHEME, st.data())
def test_late_answers_count_whenever_they_are_heard(setting: Setting, data: st.DataObject) -> None:
    """Answers of former rounds are harmless, and the jobs that are due still decode."""
    scheme = setting.build()
    play, model = Play(scheme), scheme.straggler_model("either")
    owed: list[tuple[int, int]] = []
    for t in range(scheme.rounds):
        late = conform(play, model, data.draw(st.integers(0, 2**9 - 1)))
        for round_, worker in data.draw(st.permutations(owed)):
            play.answer([worker], round_)
        owed = [(t, int(worker)) for worker in np.flatnonzero(late)]
        assert scheme.may_start(t + 1)
        model.commit(late)
        play.end()


@settings(max_examples=80)
@given(ANY_SCHEME, st.data())
def test_wanted_workers_complete_the_round(setting: Setting, data: st.DataObject) -> None:
    """However few answered, the answers of all wanted workers let the round end; they are missing and were invoked."""
    scheme = setting.build()
    play = Play(scheme)
    for t in range(scheme.rounds):
        invoked = play.start()
        answered = data.draw(st.sets(st.sampled_from(invoked))) if invoked else set()
        play.answer(answered)
        wanted = scheme.wanted(t)
        assert set(wanted) <= set(invoked) - answered
        assert len(set(wanted)) == len(wanted)
        play.answer(wanted)
        assert scheme.wanted(t) == ()
        assert scheme.may_start(t + 1)
        play.end()


@settings(max_examples=60)
@given(ANY_SCHEME, st.data())
def test_the_estimate_is_the_least_squares_one(setting: Setting, data: st.DataObject) -> None:
    """No combination of the rows that were heard comes closer to the all-ones row, chunks weighed by their size."""
    scheme = setting.build()
    play = Play(scheme)
    play.start()
    heard = data.draw(st.sets(st.sampled_from(sorted(play.tasks))))
    for key in sorted(heard):
        scheme.heard(key)
    estimate = scheme.estimate(0)
    error = play.combined_row(estimate) - 1.0
    assert float(scheme.chunk_sizes @ error**2) == pytest.approx(estimate.missing, abs=1e-9)
    scale = np.sqrt(scheme.chunk_sizes)
    rows = np.zeros((len(heard), len(scale)))
    for row, key in zip(rows, sorted(heard), strict=True):
        row[list(play.tasks[key].chunks)] = play.tasks[key].coefficients
    best = np.linalg.lstsq((rows * scale).T, scale, rcond=None)[0]
    least = float(np.sum((best @ (rows * scale) - scale) ** 2))
    assert estimate.missing == pytest.approx(least, abs=1e-9)
