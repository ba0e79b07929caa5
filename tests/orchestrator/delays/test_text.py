"""The heat map and the tail as text: what a character stands for, and sizes that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.delays import DelayProfile, generate
from gradmux.orchestrator.delays.text import FAILED, LEGEND, SHADES, heat_map, tail_sketch


def cells(text: str) -> list[str]:
    return [line.split("│")[1] for line in text.splitlines() if "│" in line]


def test_each_shade_stands_for_its_multiple_of_the_fastest() -> None:
    profile = DelayProfile(np.array([[1.0, 1.19, 1.2, 1.5, 2.0, 5.0, np.inf], [2.0, 2.0, 2.5, 3.5, 9.0, 11.0, 2.0]]))
    assert cells(heat_map(profile)) == ["  ░▒▓█×", "  ░▒▓█ "]


def test_a_character_shows_the_slowest_of_what_it_stands_for() -> None:
    delays_s = np.ones((40, 100))
    delays_s[39, 99], delays_s[0, 1], delays_s[21, 51] = 9.0, 1.6, np.inf
    drawn = cells(heat_map(DelayProfile(delays_s), width=10, height=4))
    assert drawn == ["▒         ", "          ", "     ×    ", "         █"]


def test_a_round_of_failures_is_drawn_as_such() -> None:
    assert cells(heat_map(DelayProfile(np.array([[np.inf, np.inf], [1.0, 1.0]])))) == ["××", "  "]


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 30), st.integers(1, 30))
def test_a_heat_map_has_at_most_the_size_that_was_asked_for(rounds: int, workers: int, width: int, height: int) -> None:
    text = heat_map(generate("bursty", rounds, workers, 1), width=width, height=height)
    drawn = cells(text)
    assert len(drawn) == min(rounds, height)
    assert {len(line) for line in drawn} == {min(workers, width)}
    assert set("".join(drawn)) <= set(SHADES + FAILED)
    assert text.endswith(LEGEND)


def test_the_tail_tells_quantiles_in_seconds_with_bars_that_grow() -> None:
    lines = tail_sketch(DelayProfile(np.linspace(1.0, 101.0, 1001)[None, :]), width=20).splitlines()
    assert lines[1].split()[:3] == ["50.0%", "51.000", "s"]
    assert lines[-1].split()[:2] == ["100.0%", "101.000"]
    bars = [line.count("▇") for line in lines[1:]]
    assert bars == sorted(bars)
    assert bars[-1] == 20


@pytest.mark.parametrize("delays_s", [[[1.0]], [[0.0, 0.0]], [[2.0, np.inf]]])
def test_a_tail_without_spread_is_drawn_too(delays_s: list[list[float]]) -> None:
    assert len(tail_sketch(DelayProfile(np.array(delays_s))).splitlines()) == 8
