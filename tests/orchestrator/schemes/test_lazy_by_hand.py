"""Lazy schemes: the examples of their descriptions, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context, Key, Scheme
from tests.orchestrator.schemes.cases import Session


def test_by_hand() -> None:
    """The example of the module: step 1 asks no worker, step 2 asks both."""

    class Moves:
        def weights(self, job: int, other: int) -> float:
            return (2.0 * (job - other)) ** 2

        def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
            raise AssertionError("L is given")

    context = Context(2, 3, distances=Moves())
    scheme = build_scheme("lag-ps", {"alpha": 1.0, "D": 1, "xi": 1.0, "L": 0.8}, context)
    asked = []
    for t in range(3):
        tasks = scheme.assign(t)
        asked.append(sorted(tasks))
        for worker in tasks:
            scheme.heard(Key(t, worker, 0))
        assert scheme.decodable(t)
        assert scheme.decode(t).weights == {Key(t if asked[t] else 0, w, 0): 1.0 for w in range(2)}
        scheme.end_round(t)
    assert asked == [[0, 1], [], [0, 1]]


class Given:
    """`Distances` with given answers: weights move by `step` between neighbouring jobs, gradients of shards differ."""

    def __init__(self, step: float, ratios: Sequence[float], members: int) -> None:
        self.step, self.ratios, self.members = step, ratios, members

    def weights(self, job: int, other: int) -> float:
        return (self.step * (job - other)) ** 2

    def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
        new, old = min(one), min(other)
        return (self.ratios[new.worker // self.members] * self.step * (new.round - old.round)) ** 2


def asked_by_round(name: str, params: dict[str, float | int | str], workers: int, given: Given) -> list[list[int]]:
    """Everybody answers; who was invoked in each of three rounds."""
    context = Context(workers, 3, distances=given, rates=(1.0,))
    session = Session(build_scheme(name, {**params, "D": 1, "xi": 1.0}, context))
    for _ in range(3):
        session.answer(session.start())
        session.close()
    return session.invoked


def test_lag_ps_asks_shards_whose_weights_have_drifted_far_enough() -> None:
    """The example of lag-ps: L = 1, moved 0.2 since it was sent, RHS = 9 * 0.2^2 / 2^2 = 0.09: 0.04 <= 0.09."""
    scheme = build_scheme(
        "lag-ps", {"alpha": 1.0, "D": 1, "xi": 9.0, "L": 2.0}, Context(2, 3, distances=Given(0.2, (), 1))
    )
    session = Session(scheme)
    session.answer(session.start())
    session.close()
    assert session.start() == []


def test_lag_wk_tells_workers_the_threshold() -> None:
    """The example of lag-wk: two shards, RHS = 0.04; a worker whose gradient moved by 0.1 does not send."""
    scheme = build_scheme("lag-wk", {"alpha": 1.0, "D": 1, "xi": 1.0}, Context(2, 2, distances=Given(0.4, (), 1)))
    session = Session(scheme)
    session.answer(session.start())
    session.close()
    assert session.start() == [0, 1]
    skip = session.tasks[Key(1, 1, 0)].skip
    assert skip is not None
    assert skip.reference == 0
    assert skip.threshold == pytest.approx(0.04)
    assert skip.threshold > 0.1**2
    session.hear(session.open_keys(), unchanged=[Key(1, 1, 0)])
    session.close()
    assert session.decoded[1].weights == {Key(1, 0, 0): 1.0, Key(0, 1, 0): 1.0}


def test_g_lag_invokes_the_group_that_has_drifted() -> None:
    """The example of g-lag: n = 4, s = 1, shards at {0, 1} and {2, 3}; the first has L = 1, the second 0.1."""
    asked = asked_by_round("g-lag", {"s": 1}, 4, Given(1.0, (1.0, 0.1), members=2))
    assert asked == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1]]


def lagc() -> Scheme:
    context = Context(6, 3, distances=Given(1.0, (1.0, 1.0), members=3), rates=(1.0,))
    return build_scheme("lagc", {"groups": 2, "s": 1}, context)


def test_lagc_decodes_a_shard_from_any_two_of_three() -> None:
    """The example of lagc: n = 6, G = 2, s = 1; chunks are sixths, cut by shard."""
    session = Session(lagc())
    assert session.scheme.chunk_sizes.tolist() == pytest.approx([1 / 6] * 6)
    session.start()
    assert [session.tasks[Key(0, worker, 0)].chunks for worker in range(6)] == [
        (0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5),
    ]  # fmt: skip
    session.answer([0, 2, 4])
    assert not session.scheme.decodable(0)
    assert session.scheme.wanted(0) == (3, 5)
    session.answer([5])
    session.close()
    assert {key.worker for key in session.decoded[0].weights} == {0, 2, 4, 5}
    np.testing.assert_allclose(session.combined_row(session.decoded[0]), 1.0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("lag-wk", {"alpha": -1.0}, "alpha .* is -1, but must be positive"),
        ("lag-ps", {"alpha": 1.0, "D": 0}, "D .* too small"),
        ("g-lag", {"alpha": 1.0, "s": 6}, "use 0 <= s <= 5"),
        ("lagc", {"alpha": 1.0, "s": 3, "groups": 2, "L": 1.0}, "use s <= 2, or at most 1 groups"),
        ("lagc", {"alpha": 1.0, "s": 1, "groups": 9, "L": 1.0}, "groups = 9 does not fit 6 workers"),
        ("lag-ps", {"alpha": 1.0, "L": "1,2"}, "L .* has 2 numbers: give 1, or 6, one for each shard"),
        ("lag-ps", {"alpha": 1.0, "L": -1.0}, "L .* = -1.0 must be positive, or 0 to have it estimated"),
        ("lag-ps", {"alpha": 1.0, "L": "one"}, "L .* = 'one' must be a number, or numbers with commas"),
        ("lag-ps", {"alpha": 1.0, "xi": -1.0}, "xi = -1 must not be negative"),
    ],
)
def test_bad_parameters_get_one_line(name: str, params: dict[str, float | int | str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_scheme(name, params, Context(6, 4))
