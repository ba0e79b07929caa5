"""Job arithmetic: interleaving, resumed lives, and the models that a delay needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.jobs import Job, JobPlan, OpenPlan, require_models
from gradmux.orchestrator.simulate import plan_for
from gradmux.orchestrator.start import open_after, start_after


def test_jobs_go_round_the_models() -> None:
    plan = JobPlan(models=3, steps=2)
    assert [(plan.model(t), plan.step(t)) for t in range(plan.jobs)] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert [plan.predecessor(t) for t in range(plan.jobs)] == [None, None, None, 0, 1, 2]


def test_a_resumed_life_counts_from_zero_and_goes_on_where_the_first_ended() -> None:
    plan = JobPlan(models=3, steps=2, first=2)
    assert [(plan.model(t), plan.step(t)) for t in range(plan.jobs)] == [(2, 0), (0, 1), (1, 1), (2, 1)]
    assert plan.predecessor(3) == 0


@given(models=st.integers(1, 9), jobs=st.integers(1, 50))
def test_a_plan_of_any_number_of_jobs(models: int, jobs: int) -> None:
    plan = plan_for(models, jobs)
    assert plan.jobs == jobs
    for t in range(models, jobs):
        before = plan.predecessor(t)
        assert before is not None
        assert plan.model(before) == plan.model(t)
        assert plan.step(before) == plan.step(t) - 1


def test_models_must_outnumber_the_delay() -> None:
    require_models(4, 3, "m-sgc")
    with pytest.raises(ConfigError, match=r"m-sgc has delay T = 3 .* at least T \+ 1 = 4 models .* M = 3: add 1 model"):
        require_models(3, 3, "m-sgc")


def test_models_that_still_take_turns_keep_their_numbers() -> None:
    """Model 1 was dropped after 1 step; 0 has made 2, 2 has made 1: as in every prefix of jobs in order."""
    plan = start_after((2, 1, 1), 4, dropped={1}).plan
    assert [plan.job(t) for t in range(plan.jobs)] == [Job(2, 1), Job(0, 2), Job(2, 2), Job(0, 3), Job(2, 3)]
    assert [plan.predecessor(t) for t in range(plan.jobs)] == [None, None, 0, 1, 2]


def test_a_run_goes_on_for_more_steps_and_with_a_model_that_is_new() -> None:
    assert start_after((2, 2), 2).finished
    longer = start_after((2, 2), 3).plan
    assert [longer.job(t) for t in range(longer.jobs)] == [Job(0, 2), Job(1, 2)]
    joined = start_after((1, 1, 0), 2)
    left = [joined.plan.job(t) for t in range(joined.plan.jobs) if t not in joined.already]
    assert left == [Job(2, 0), Job(0, 1), Job(1, 1), Job(2, 1)]


# --- jobs that are chosen as they are dispatched -----------------------------------------------------------------


def test_an_open_plan_by_hand() -> None:
    plan = OpenPlan(done=(0, 3, 5), ends=(7, 5, 5))
    assert (plan.jobs, plan.ready(set())) == (2, [0, 1])
    assert plan.begin(0, steps=4) == 0
    assert plan.begin(1, steps=4) == 1
    assert [plan.job(0), plan.job(1)] == [Job(0, 0, 4), Job(1, 3, 2)], "it stops at its model's end"
    assert (plan.jobs, plan.ready(set()), plan.ready({1})) == (3, [], [])
    assert plan.ready({0}) == [0]
    assert plan.begin(0) == 2
    assert (plan.job(2), plan.predecessor(2), plan.predecessor(1)) == (Job(0, 4), 0, None)
    assert plan.end(0, step=2) == 5, "not before what has begun"
    assert (plan.jobs, plan.ready({0, 1, 2})) == (3, [])
    new = plan.add(end=9, done=8)
    assert plan.begin(new) == 3
    assert (plan.ends, plan.steps, plan.jobs) == ((5, 5, 5, 9), 9, 4)


def test_an_open_plan_is_shortened_to_where_the_first_has_begun() -> None:
    plan = OpenPlan(done=(0, 0, 0), ends=(9, 9, 2))
    plan.begin(1, steps=3)
    plan.shorten()
    assert plan.ends == (3, 3, 2)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5), st.data())
def test_whatever_is_chosen_every_step_of_every_model_is_in_one_job_and_in_order(
    models: list[tuple[int, int]], data: st.DataObject
) -> None:
    done, ends = [min(pair) for pair in models], [max(pair) for pair in models]
    plan, applied, running = OpenPlan(done, ends), set[int](), list[int]()
    while len(applied) < plan.jobs:
        ready = plan.ready(applied)
        assert ready or running, "something can always go on"
        if ready and (not running or data.draw(st.booleans())):
            running.append(plan.begin(data.draw(st.sampled_from(ready)), data.draw(st.integers(1, 4))))
            continue
        job = running.pop(data.draw(st.integers(0, len(running) - 1)))
        before = plan.predecessor(job)
        assert before is None or before in applied
        applied.add(job)
        change = data.draw(st.sampled_from(["none", "none", "end", "add"]))
        if change == "end":
            model = data.draw(st.integers(0, plan.models - 1))
            ends[model] = plan.end(model, data.draw(st.integers(0, 9)))
        elif change == "add" and plan.models < 8:
            plan.add(end=3, done=1)
            done, ends = [*done, 1], [*ends, 3]
    for model in range(plan.models):
        parts = [plan.job(number) for number in range(plan.jobs) if plan.model(number) == model]
        steps = [step for part in parts for step in range(part.first, part.end)]
        assert steps == list(range(done[model], ends[model]))


def test_a_life_of_an_open_plan_begins_where_each_model_stands() -> None:
    plan = open_after(done=(4, 2, 0), ends=(3, 6, 2))
    assert plan.ends == (4, 6, 2), "what was dropped or had ended makes no more"
    assert plan.ready(set()) == [2, 1]
