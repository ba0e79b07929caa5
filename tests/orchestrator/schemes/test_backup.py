"""`backup`: the policy that it brings, and what the round machine makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.ports import Arrival, Outcome
from gradmux.orchestrator.rounds import Rounds, Send
from gradmux.orchestrator.schemes.asks import BacksUp, Backup
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context
from gradmux.orchestrator.simulate import Simulation, SimulationOptions, simulate

Values = dict[str, int | float | str]


def played(delays: list[list[float]], params: Values, limits: Limits | None = None) -> Simulation:
    return simulate(np.array(delays), "backup", params, SimulationOptions(jobs=1, limits=limits or Limits()))


def test_by_hand() -> None:
    """Columns are alike but for one straggler: its task is invoked again at 1.2 s and takes another column's delay."""
    delays = [[1.0, 1.1, 9.0, 1.2]]
    backed_up = played(delays, {"q": 0.75, "mu": 100})
    again = [group for line in backed_up.lines for group in line.sent if group.attempt == 2]
    assert [(group.at_s, group.workers) for group in again] == [(1.2, (2,))]
    assert backed_up.total_s in {2.2, 2.3, 2.4, 9.0}
    assert backed_up.total_s < 9.0
    assert backed_up.invocations == 5


def test_time_or_share_whichever_comes_first() -> None:
    delays = [[1.0, 1.1, 9.0, 9.0]]
    by_time = played(delays, {"q": 1, "mu": 0.5})
    by_share = played(delays, {"q": 0.5, "mu": 5})
    assert _second_attempts(by_time) == [1.5]
    assert _second_attempts(by_share) == [1.1]
    assert _second_attempts(played(delays, {"q": 0.5, "mu": 0.05})) == [1.05]
    assert _second_attempts(played(delays, {"q": 1, "mu": 20})) == []


def test_the_policy_of_the_run_goes_before_that_of_the_scheme() -> None:
    delays = [[1.0, 1.1, 9.0, 9.0]]
    assert _second_attempts(played(delays, {}, Limits(backup=Backup(share=None, slack=1.5)))) == [2.5]
    assert _second_attempts(played(delays, {}, Limits(backup=Backup(share=None, slack=None)))) == []


def test_a_policy_of_several_times_comes_back_at_multiples() -> None:
    """Twice the fastest, which took 1 s: at 2 s and 4 s, and not at 6 s."""
    scheme = build_scheme("uncoded", {}, Context(2, 1))
    rounds = Rounds(scheme, JobPlan(1, 1), Earliest(), Limits(backup=Backup(None, 1.0, times=2), attempts=9))
    sent = []
    _send(rounds, 0.0)
    rounds.arrived(Arrival(0, 0, 1, 1.0, Outcome.OK, (0,)))
    while (wake_s := rounds.wake_at()) is not None:
        assert rounds.next_action() is None
        rounds.tick(wake_s)
        sent.append((wake_s, _send(rounds, wake_s)))
    assert sent == [(2.0, [(1, 2)]), (4.0, [(1, 3)])]


def test_the_scheme_asks_by_its_attribute() -> None:
    scheme = build_scheme("backup", {"q": 0.8, "mu": 2}, Context(4, 1))
    assert isinstance(scheme, BacksUp)
    assert scheme.backup == Backup(share=0.8, slack=2.0, times=1)
    assert not isinstance(build_scheme("uncoded", {}, Context(4, 1)), BacksUp)


@pytest.mark.parametrize(
    ("params", "message"),
    [({"q": 0}, r"q \(share\) = 0 is not a share"), ({"mu": -1}, "mu = -1 must be at least 0")],
)
def test_what_is_no_policy_is_refused(params: Values, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        played([[1.0]], params)


def _second_attempts(simulation: Simulation) -> list[float]:
    return [group.at_s for line in simulation.lines for group in line.sent if group.attempt == 2]


def _send(rounds: Rounds, at_s: float) -> list[tuple[int, int]]:
    action = rounds.next_action()
    assert isinstance(action, Send)
    rounds.sent(action.invocations, at_s)
    return [(call.worker, call.attempt) for call in action.invocations]
