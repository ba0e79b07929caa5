"""What every registered scheme must do, exact or not, lazy or not: found in the registry, so that none is left out."""

from __future__ import annotations

import ast
import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.schemes import registry
from gradmux.orchestrator.schemes.drawing import context_of
from gradmux.orchestrator.schemes.registry import REGISTRY
from gradmux.orchestrator.schemes.scheme import Scheme
from tests.orchestrator.schemes.cases import CASES, Case, Session, check, estimate_error

FOLDER = Path(registry.__file__).parent
every_scheme = pytest.mark.parametrize("name", REGISTRY)


# --- what is registered ----------------------------------------------------------------------------------------------


def test_every_registered_scheme_is_tried_here() -> None:
    assert set(CASES) == set(REGISTRY), "add the scheme to CASES in cases.py"


@every_scheme
def test_every_scheme_names_its_source_and_has_an_example_and_a_drawing(name: str) -> None:
    info = REGISTRY[name]
    assert any(word in info.source for word in ("arXiv", "baseline", "ours")), "a paper, or that there is none"
    assert len(info.example) > 20
    assert info.sample is not None
    assert info.sample.workers <= 8


@every_scheme
def test_every_scheme_is_worked_by_hand_in_its_module(name: str) -> None:
    """The module that builds it says "By hand" and names the source; lazy schemes share one."""
    build = REGISTRY[name].build
    module = getattr(build, "func", build).__module__.rpartition(".")[2]
    files = [FOLDER / f"{module}.py", *([FOLDER / "lazy.py"] if module == "lazy_family" else [])]
    texts = [ast.get_docstring(ast.parse(file.read_text())) or "" for file in files]
    assert any("By hand" in text for text in texts)


# --- random plays ----------------------------------------------------------------------------------------------------


def play_round(session: Session, data: st.DataObject) -> None:
    """Opens a round; some answer, in some order, some have nothing new; what is still needed then comes too."""
    session.start()
    keys = session.open_keys()
    heard = data.draw(st.permutations(keys)) if keys else []
    some = heard[: data.draw(st.integers(0, len(heard)))]
    session.hear(some, unchanged=data.draw(st.sets(st.sampled_from(keys))) if keys else ())
    session.finish()


@every_scheme
@settings(max_examples=25)
@given(data=st.data())
def test_every_job_decodes_and_says_truly_how_well(name: str, data: st.DataObject) -> None:
    """weights x rows gives one for each chunk, or misses it by what `residual` and `missing` say."""
    scheme = data.draw(CASES[name]).build()
    assert scheme.chunk_sizes.sum() == pytest.approx(1.0)
    assert (scheme.chunk_sizes > 0).all()
    session = Session(scheme)
    for t in range(scheme.rounds):
        play_round(session, data)
        assert scheme.may_start(t + 1)
        kept = scheme.keeps()
        for job in session.close():
            assert set(session.decoded[job].weights) <= kept
            check(session, job, session.decoded[job])
    assert sorted(session.decoded) == list(range(scheme.jobs))


@every_scheme
@settings(max_examples=15)
@given(data=st.data())
def test_predicates_change_nothing(name: str, data: st.DataObject) -> None:
    scheme = data.draw(CASES[name]).build()
    session = Session(scheme)
    for t in range(scheme.rounds):
        session.start()
        keys = session.open_keys()
        session.hear(data.draw(st.sets(st.sampled_from(keys))) if keys else ())
        before = pickle.dumps(scheme)
        first = ask_everything(scheme, t)
        assert ask_everything(scheme, t) == first
        assert pickle.dumps(scheme) == before
        session.finish()
        session.close()


def ask_everything(scheme: Scheme, t: int) -> tuple[object, ...]:
    decodable = [scheme.decodable(job) for job in range(scheme.jobs)]
    return decodable, scheme.may_start(t + 1), scheme.wanted(t), scheme.keeps(), scheme.needs_weights()


@every_scheme
@settings(max_examples=15)
@given(data=st.data())
def test_more_answers_never_hurt_and_all_of_them_suffice(name: str, data: st.DataObject) -> None:
    scheme = data.draw(CASES[name]).build()
    session = Session(scheme)
    for t in range(scheme.rounds):
        session.start()
        keys = session.open_keys()
        could: tuple[set[int], bool] = (set(), False)
        for key in data.draw(st.permutations(keys)) if keys else []:
            scheme.heard(key)
            can = {job for job in range(scheme.jobs) if scheme.decodable(job)}, scheme.may_start(t + 1)
            assert could[0] <= can[0]
            assert could[1] <= can[1]
            could = can
        assert scheme.may_start(t + 1)
        session.close()


@every_scheme
@settings(max_examples=15)
@given(data=st.data())
def test_wanted_workers_were_asked_have_not_answered_and_complete_the_round(name: str, data: st.DataObject) -> None:
    scheme = data.draw(CASES[name]).build()
    session = Session(scheme)
    for t in range(scheme.rounds):
        invoked = session.start()
        answered = data.draw(st.sets(st.sampled_from(invoked))) if invoked else set()
        session.answer(answered)
        wanted = scheme.wanted(t)
        assert set(wanted) <= set(invoked) - answered
        assert len(set(wanted)) == len(wanted)
        session.answer(wanted)
        assert scheme.wanted(t) == ()
        assert scheme.may_start(t + 1)
        session.close()


@every_scheme
@settings(max_examples=15)
@given(data=st.data())
def test_repeated_and_late_answers_are_harmless(name: str, data: st.DataObject) -> None:
    """Every answer twice, and each once more when its round has closed."""
    case: Case = data.draw(CASES[name])
    once, twice = Session(case.build()), Session(case.build())
    for _ in range(once.scheme.rounds):
        once.start()
        twice.start()
        assert twice.tasks == once.tasks
        keys = once.open_keys()
        once.hear(keys)
        twice.hear([key for key in keys for _ in range(2)])
        assert twice.scheme.keeps() == once.scheme.keeps()
        once.close()
        twice.close()
        twice.hear(keys)
    assert twice.decoded == once.decoded


# --- every pattern of a small case -----------------------------------------------------------------------------------


@every_scheme
def test_every_set_of_answers_to_the_first_round_decodes_rightly_or_not_at_all(name: str) -> None:
    """Each worker of the sample sends none, some or all of its messages, in order: all combinations."""
    sample = REGISTRY[name].sample
    assert sample is not None
    decoded = tried = 0
    scheme = registry.build_scheme(name, sample.params, context_of(sample))
    opening = Session(scheme)
    opening.start()
    start = pickle.dumps(opening)
    owed = [opening.keys(0, worker) for worker in opening.invoked[0]]
    for sent in product(*(range(len(keys) + 1) for keys in owed)):
        session: Session = pickle.loads(start)
        session.hear(key for count, keys in zip(sent, owed, strict=True) for key in keys[:count])
        tried += 1
        if session.scheme.decodable(0):
            decoded += 1
            check(session, 0, session.scheme.decode(0))
        elif not session.scheme.reuses_results:
            assert estimate_error(session) > 1e-9, "these answers do suffice"
    assert tried == np.prod([len(keys) + 1 for keys in owed])
    assert decoded > 0 or scheme.delay > 0
