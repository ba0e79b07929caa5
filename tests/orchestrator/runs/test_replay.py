"""`replay`: every scheme's record gives the same decisions again, and one that was changed gives the first difference.

The records are made by the loop in virtual time, with failures, whole, and cut off at every line; real runs, stopped,
resumed and automatic, are in `tests/cli/test_replay.py`.
"""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from msgspec import structs

from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.delays import Failures
from gradmux.orchestrator.distances import RecordedDistances
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.record import EndLine, Header, Line, MemoryRecord, RecordError, RoundLine
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.runs.history import WORTH
from gradmux.orchestrator.runs.replay import Replayed, replay
from gradmux.orchestrator.schemes.drawing import MadeUp
from gradmux.orchestrator.schemes.registry import REGISTRY, build_scheme, parse_params
from gradmux.orchestrator.schemes.scheme import Context
from gradmux.orchestrator.simulate import NoTrainer
from gradmux.orchestrator.start import start_for

STEPS = 6


def config_of(name: str) -> JobConfig:
    sample = REGISTRY[name].sample
    assert sample is not None
    concurrency = sample.concurrency or 4 * sample.workers
    models = [
        {"name": f"m{i}", "factory": "torch.nn:Linear", "optimizer": {"name": "SGD", "lr": 0.1}} for i in range(M)
    ]
    tree = {
        "cluster": {"workers": sample.workers, "concurrency": concurrency},
        "scheme": {"name": name, **sample.params},
        "data": {"train": "digits:train", "batch_size": 60},
        "training": {"steps": STEPS},
        "models": models,
    }
    return parse_job(tree, "test")


M = 4
"""models: enough for the delays of all samples"""


def record_of(name: str) -> tuple[JobConfig, list[Line]]:
    """A run of the scheme's sample over delays from a heavy tail, where one call in thirty fails."""
    config, sample = config_of(name), REGISTRY[name].sample
    assert sample is not None
    plan, params = start_for(REGISTRY[name], (0,) * M, STEPS).plan, parse_params(REGISTRY[name], sample.params)
    limits = Limits(concurrency=config.cluster.concurrency, attempts=9)
    distances = RecordedDistances(MadeUp(sample.workers, M))
    context = Context(
        workers=sample.workers, jobs=plan.most_jobs, models=M, seed=config.training.seed, samples=60,
        concurrency=config.cluster.concurrency, rates=(0.1,) * M, distances=distances,
    )  # fmt: skip
    scheme = build_scheme(name, params, context)
    rng = np.random.default_rng(3)
    delays_s = 1.0 + rng.pareto(1.5, (50, max(sample.workers, scheme.workers)))
    delays_s[rng.random(delays_s.shape) < 1 / 30] = math.inf
    record = MemoryRecord()
    wait, told = {"policy": "earliest"}, {WORTH: context.worth.to_dict()}
    record.write(Header("r", name, params, scheme.workers, M, STEPS, context.seed, wait, asdict(limits), extra=told))
    fleet = ProfileFleet(DelayTable(delays_s, scheme.workers, failures=Failures(1.1)), LoadModel(0.5))
    rounds = Rounds(scheme, plan, Earliest(), limits)
    loop = Loop(plan=plan, rounds=rounds, fleet=fleet, trainer=NoTrainer(), recorder=record, asked=distances.take)
    loop.run()
    loop.drain(math.inf)
    return config, record.lines


@pytest.mark.parametrize("name", REGISTRY)
def test_a_record_gives_the_same_decisions(name: str) -> None:
    config, lines = record_of(name)
    rounds = [line for line in lines if isinstance(line, RoundLine)]
    assert any(item.outcome == "failed" for line in rounds for item in line.arrivals)
    jobs = sum(len(line.decoded) for line in lines if not isinstance(line, Header))
    assert replay(config, lines) == Replayed(1, 1, len(rounds), jobs, None)
    assert sum(each.steps for line in rounds for each in line.decoded) == M * STEPS


@pytest.mark.parametrize("name", REGISTRY)
def test_what_a_killed_life_left_gives_the_same_decisions(name: str) -> None:
    """Cut off after each line."""
    config, lines = record_of(name)
    for end in range(1, len(lines), 3):
        assert replay(config, lines[:end]).difference is None, f"after {end} lines"


@pytest.mark.parametrize("name", ["uncoded", "gc", "m-sgc", "pipeline", "stretch"])
def test_the_first_change_is_named(name: str) -> None:
    """A decode of other results, a late worker that was not, an answer that came sooner: round and job."""
    config, lines = record_of(name)
    place = next(i for i, line in enumerate(lines) if isinstance(line, RoundLine) and line.decoded and i > 4)
    line = lines[place]
    assert isinstance(line, RoundLine)
    (first, *others) = line.decoded
    other = structs.replace(line, decoded=(structs.replace(first, weights_crc=first.weights_crc ^ 1), *others))
    found = replay(config, [*lines[:place], other, *lines[place + 1 :]]).difference
    assert found is not None
    assert (found.life, found.round, found.job, found.what) == (1, line.round, first.job, "its decode")
    late = structs.replace(line, late=(*line.late, 99))
    found = replay(config, [*lines[:place], late, *lines[place + 1 :]]).difference
    assert found is not None
    assert (found.round, found.job, found.what) == (line.round, None, "late workers")
    assert f"life 1, round {line.round}: late workers: 99 in the record, nothing in the replay" == found.describe()


def test_another_scheme_is_another_run() -> None:
    config, lines = record_of("gc")
    header = lines[0]
    assert isinstance(header, Header)
    params = {**header.params, "stragglers": 0}
    found = replay(config, [structs.replace(header, params=params), *lines[1:]]).difference
    assert found is not None
    assert found.round == 0


def test_a_run_that_ended_otherwise_differs() -> None:
    config, lines = record_of("uncoded")
    end = lines[-1]
    assert isinstance(end, EndLine)
    shorter = [*lines[:-3], end]
    assert replay(config, shorter).difference is not None


def test_a_record_without_its_head_is_refused() -> None:
    config, lines = record_of("uncoded")
    with pytest.raises(RecordError, match="does not begin with a description"):
        replay(config, lines[1:])
