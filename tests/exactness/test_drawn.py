"""Random small networks train to the weights of a plain loop under every scheme, or are refused before a worker is
invoked: never anything else. `EXPLORE=400` draws so many others, from a number that is printed first; with
`EXPLORE_FROM` beside it, from that number.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter

import pytest

from scripts.exactness.drawn import drawn_case
from scripts.exactness.here import SCHEMES, judge

EXACT = 1e-5
COUNT = 24
UNSTEADY = 0.4
"""at least so many must interact, draw random numbers or keep state"""


def test_random_networks_are_exact_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    explore = int(os.environ.get("EXPLORE", "0"))
    first = int(os.environ.get("EXPLORE_FROM") or secrets.randbelow(10**9)) if explore else 0
    numbers = range(first, first + (explore or COUNT))
    with capsys.disabled():
        print(f"\nrandom networks from number {first}")
    found, wrong = Counter[str](), []
    for number in numbers:
        case = drawn_case(number)
        verdict = judge(case, SCHEMES if explore else _two(number))
        found["refused" if verdict.refused else "fixed" if verdict.fixed else "free"] += 1
        if not verdict.refused and not verdict.difference < EXACT:
            wrong.append(f"{case.name}: {verdict.differences}")
        assert "\n" not in verdict.refused
    with capsys.disabled():
        shares = ", ".join(f"{name} {100 * count / len(numbers):.0f} %" for name, count in sorted(found.items()))
        print(f"\n{len(numbers)} random networks from number {first}: {shares}")
    assert not wrong
    assert found["fixed"] + found["refused"] >= UNSTEADY * len(numbers)
    assert min(found["fixed"], found["free"]) > 0, "both kinds are among them"


@pytest.mark.parametrize("number", [100045, 200097])
def test_networks_that_exploring_found(number: int) -> None:
    """Batch norm behind an instance norm, whose mean over a picture is zero: these rows show no interaction."""
    verdict = judge(drawn_case(number))
    assert verdict.fixed
    assert not verdict.refused
    assert verdict.difference < EXACT


def _two(number: int) -> list[object]:
    """One scheme, another for each network in turn, on two numbers of workers."""
    place = 2 * (number % 3)
    return list(SCHEMES[place : place + 2])
