"""A scheme defined outside the package, as the guide shows it: every pattern, the simulator and real workers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradmux.orchestrator import rehearsal
from gradmux.orchestrator.errors import ConfigError, SchemeFault
from gradmux.orchestrator.schemes.registry import REGISTRY, build_scheme, register
from gradmux.orchestrator.schemes.scheme import Context, Decoding, Key
from gradmux.orchestrator.simulate import SimulationOptions, simulate
from tests.cli.conftest import Gradmux, gradmux, home
from tests.orchestrator.schemes.exploring import explore
from tests.orchestrator.schemes.playing import Play, mask
from tests.outside import even_odd

__all__ = ["gradmux", "home"]

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-scheme.md"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(even_odd.INFO)
    yield
    del REGISTRY["even-odd"]


def play(workers: int, jobs: int = 1) -> Play:
    return Play(build_scheme("even-odd", {}, Context(workers, jobs)))


def test_the_guide_shows_this_very_file() -> None:
    (shown,) = re.findall(r"^```python\n(\"\"\"`even-odd`.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert shown == Path(even_odd.__file__).read_text()


def test_by_hand() -> None:
    game = play(4)
    game.start()
    assert [game.tasks[Key(0, worker, 0)].chunks for worker in range(4)] == [(0, 1), (1, 2), (2, 3), (3, 0)]
    game.answer([2])
    assert game.scheme.wanted(0) == (0,)
    assert game.scheme.estimate(0).missing == pytest.approx(0.5)
    game.answer([0])
    assert game.end() == (0,)
    assert game.decoded[0].weights == {Key(0, 0, 0): 1.0, Key(0, 2, 0): 1.0}


@pytest.mark.parametrize("workers", [2, 4, 6])
def test_every_pattern_that_it_claims_to_tolerate_decodes(workers: int) -> None:
    scheme = play(workers).scheme
    explored = explore(scheme, scheme.straggler_model("either"))
    assert explored.rounds == 2 ** (workers // 2 + 1) - 1, (
        "all sets of even workers, all of odd ones, the empty one once"
    )


def test_one_of_each_kind_is_too_many() -> None:
    game = play(4)
    game.start()
    assert not game.scheme.straggler_model("either").admits(mask(4, [0, 3]))
    game.answer([1, 2])
    assert not game.scheme.may_start(1)


def test_an_odd_number_of_workers_is_refused() -> None:
    with pytest.raises(ConfigError, match="even-odd: 5 workers make no ring of pairs: use 6"):
        play(5)


def test_in_the_simulator() -> None:
    """A round lasts until the faster kind is complete."""
    delays_s = np.random.default_rng(3).exponential(1.0, size=(20, 8)) + 0.5
    result = simulate(delays_s, "even-odd", {}, SimulationOptions(jobs=20))
    expected = np.minimum(delays_s[:, 0::2].max(axis=1), delays_s[:, 1::2].max(axis=1))
    assert result.durations == pytest.approx(expected)
    assert result.load == pytest.approx(2 / 8)


MODELS = """
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
"""
JOB = """
name = "ring"
cluster = { workers = 6 }
scheme = { name = "even-odd" }
data = { train = "digits:train", batch_size = 90 }
training = { steps = 4 }
emulator = { delays = "lambda-like", time_scale = 0.05 }
models = [{ name = "mlp", factory = "ring_models:mlp", optimizer = { name = "Adam", lr = 1e-2 } }]
"""


def test_on_real_workers(gradmux: Gradmux, tmp_path: Path) -> None:
    """From its name in a job file to weights that are those of ordinary training."""
    from safetensors.torch import load_file

    from gradmux.orchestrator.job_file import load_job
    from gradmux.orchestrator.materials import Materials
    from gradmux.orchestrator.reference import Reference
    from gradmux.orchestrator.runs.prepare import prepare_job
    from gradmux.orchestrator.store import open_bucket

    (tmp_path / "ring_models.py").write_text(MODELS)
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    ran = gradmux("submit", job, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["load"] == pytest.approx(2 / 6)
    expected = Reference.of(prepare_job(load_job(job), Materials(), tmp_path, open_bucket)).modules["mlp"]
    weights = load_file(ran.document["models"][0]["checkpoint"])
    for name, tensor in expected.state_dict().items():
        assert np.abs(weights[name].numpy() - tensor.numpy()).max() < 1e-5


def test_the_list_of_schemes_explains_and_draws_it(gradmux: Gradmux) -> None:
    out = gradmux("schemes", "even-odd").out
    assert "0      │ j0 g0+g1   │ j1 g0+g1 ✗\n" in out
    assert "after round 0: job 0 = y(0,0) + y(0,2)\n" in out


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheme with a mistake in it."""

    def one_kind(self: even_odd.RingJob) -> dict[Key, float]:
        raise ZeroDivisionError("of nothing\nby nothing")

    monkeypatch.setattr(even_odd.RingJob, "_one_kind", one_kind)
    monkeypatch.setattr(rehearsal, "_passed", set())  # it was rehearsed without the mistake


@pytest.mark.usefixtures("raising")
@pytest.mark.parametrize("words", [["schemes", "even-odd"], ["simulate", "bursty", "--scheme", "even-odd"]])
def test_a_scheme_that_raises_is_one_line_with_its_place(gradmux: Gradmux, words: list[str]) -> None:
    told = gradmux(*words)
    assert (told.code, told.err.count("\n")) == (1 if words[0] == "schemes" else 2, 1)
    assert (
        "scheme even-odd, round 0, job 0: decode(0) raised ZeroDivisionError: of nothing (test_even_odd.py:" in told.err
    )
    assert ", in one_kind), although it says that it is decodable; -v shows the whole traceback" in told.err
    whole = gradmux(*words, "-v").err
    assert "Traceback (most recent call last)" in whole
    assert whole.splitlines()[-1] == told.err.strip()


@pytest.mark.usefixtures("raising")
def test_a_job_whose_scheme_raises_does_not_begin(gradmux: Gradmux, tmp_path: Path, home: Path) -> None:
    (tmp_path / "ring_models.py").write_text(MODELS)
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    told = gradmux("submit", job, "--quiet")
    assert (told.code, told.err.count("\n")) == (2, 1), told.err
    assert "scheme even-odd, round 0, job 0: decode(0) raised ZeroDivisionError: of nothing" in told.err
    assert not (home / "runs" / "ring-1").exists(), "no run has begun"


@pytest.mark.parametrize(
    ("used", "told"),
    [
        ((2,), "chunk 0 counts 0 times instead of once (in no answer that is used)"),
        ((0, 1, 2), "chunk 1 counts 2 times instead of once (worker 0 in round 2, worker 1 in round 2)"),
    ],
)
def test_a_decode_that_is_wrong_ends_the_run(used: tuple[int, ...], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is seen from tasks and weights: what the scheme states of itself counts for nothing."""
    whole = even_odd.RingJob.combine

    def wrong(job: even_odd.RingJob, estimate: bool) -> Decoding:
        found = whole(job, estimate)
        return replace(found, weights={Key(2, worker, 0): 1.0 for worker in used}) if job.job == 2 else found

    monkeypatch.setattr(even_odd.RingJob, "combine", wrong)
    monkeypatch.setattr(even_odd.RingJob, "complete", property(lambda job: len(job.heard) == job.workers))
    with pytest.raises(SchemeFault) as caught:
        simulate(np.ones((4, 4)), "even-odd", {}, SimulationOptions(jobs=4))
    assert "scheme even-odd, round 2, job 2: weights x rows miss the gradient by 1.0e+00: " in str(caught.value)
    assert told in str(caught.value)


def test_what_a_scheme_states_is_not_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = even_odd.RingJob.combine
    monkeypatch.setattr(even_odd.RingJob, "combine", lambda job, estimate: replace(whole(job, estimate), residual=1e-7))
    played = simulate(np.ones((4, 4)), "even-odd", {}, SimulationOptions(jobs=4))
    assert played.to_dict()["decode"]["max_residual"] == 0.0
