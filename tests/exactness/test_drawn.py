"""Random small networks train to the weights of a plain loop under every scheme, or are refused before a worker is
invoked: never anything else. `EXPLORE=400` draws so many others, from a number that is printed first; with
`EXPLORE_FROM` beside it, from that number.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Sequence

import pytest

from scripts.exactness.conditioning import EXACT, EXACT_64, in_float64, is_exact, precise_of
from scripts.exactness.drawn import drawn_case
from scripts.exactness.here import SCHEMES, Case, Setting, Verdict, judge

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
        schemes = SCHEMES if explore else _two(number)
        verdict = judge(case, schemes)
        found["refused" if verdict.refused else "fixed" if verdict.fixed else "free"] += 1
        if (unlike := _unlike(case, verdict, schemes)) is not None:
            wrong.append(f"{case.name}: {unlike}")
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


@pytest.mark.parametrize("number", [200178, 400199])
def test_networks_that_amplify_rounding_are_judged_in_float64(number: int) -> None:
    """An RMSNorm divides what is nearly zero behind a batch norm: 1e-5 in float32, where a bound decides nothing."""
    case = drawn_case(number)
    assert _unlike(case, judge(case, SCHEMES[:2]), SCHEMES[:2]) is None
    assert judge(in_float64(case), SCHEMES[:2]).difference < EXACT_64


def test_float64_excuses_rounding_alone() -> None:
    case = drawn_case(0)
    assert _unlike(case, Verdict(differences={"gc": 2e-5}), SCHEMES[:2]) is None, "float64 agrees"
    assert _unlike(case, Verdict(differences={"gc": 2e-3}), SCHEMES[:2]) is not None, "too far for rounding"
    assert _unlike(case, Verdict(differences={"gc": float("nan")}), SCHEMES[:2]) is not None


def _unlike(case: Case, verdict: Verdict, schemes: Sequence[Setting]) -> str | None:
    """How a network differs from the plain loop, unless that is float32's rounding, which float64 shows; or None."""
    precise = precise_of(case, verdict, schemes)
    if verdict.refused or is_exact(verdict, precise):
        return None
    return f"{verdict.differences}, in float64 {precise}"


def _two(number: int) -> Sequence[Setting]:
    """One kind of scheme, another for each network in turn, on two numbers of workers."""
    place = 2 * (number % (len(SCHEMES) // 2))
    return SCHEMES[place : place + 2]
