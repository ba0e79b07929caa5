"""Job arithmetic: interleaving, resumed lives, and the models that a delay needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.jobs import JobPlan, require_models
from gradmux.orchestrator.simulate import plan_for


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
