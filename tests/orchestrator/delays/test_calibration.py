"""The presets behave like the measured traces that they were fitted on. Skipped where the traces are not at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.profile_calibration import Comparison, compare, measured_traces
from gradmux.orchestrator.delays import PRESETS, DelayProfile, LambdaLike
from gradmux.orchestrator.delays.statistics import summarise

SEEDS = 12


@pytest.fixture(scope="module")
def traces(shared: Path) -> list[tuple[DelayProfile, str]]:
    return list(measured_traces(shared / "profiles"))


@pytest.fixture(scope="module")
def compared(traces: list[tuple[DelayProfile, str]]) -> dict[str, list[Comparison]]:
    """Figure -> its comparison on every trace above load 0 (a case of its own)."""
    rows: dict[str, list[Comparison]] = {}
    for trace, preset in traces:
        if trace.load > 0:
            for row in compare(trace, preset, SEEDS):
                rows.setdefault(row.figure, []).append(row)
    return rows


def test_every_preset_has_a_trace(traces: list[tuple[DelayProfile, str]]) -> None:
    assert {preset for _, preset in traces} == set(PRESETS)


@pytest.mark.parametrize(
    ("figure", "tolerance"),
    [
        ("median, s", 0.06),
        ("fastest of a round, s", 0.06),
        ("slowest of a round, s", 0.12),
        ("over fastest, 50 %", 0.08),
        ("over fastest, 90 %", 0.10),
        ("over fastest, 99 %", 0.10),
        ("burst length at 0.5, rounds", 0.15),
    ],
)
def test_times_agree_on_every_trace(compared: dict[str, list[Comparison]], figure: str, tolerance: float) -> None:
    for row in compared[figure]:
        assert row.generated == pytest.approx(row.measured, rel=tolerance), row


@pytest.mark.parametrize(("mu", "tolerance"), [("1", 0.005), ("0.5", 0.07), ("0.2", 0.06)])
def test_straggler_shares_agree_on_every_trace(
    compared: dict[str, list[Comparison]], mu: str, tolerance: float
) -> None:
    for row in compared[f"stragglers at {mu}"]:
        assert row.generated == pytest.approx(row.measured, abs=tolerance, rel=0.02), row


def test_persistent_indices_straggle_as_much_more_than_chance_as_measured(
    compared: dict[str, list[Comparison]],
) -> None:
    persistent = [row for row in compared["repeat ratio at 0.5"] if row.preset == "persistent"]
    assert all(1.7 < row.measured < 3.2 and 1.7 < row.generated < 3.2 for row in persistent)
    for row in compared["correlation at 0.5"]:
        assert row.generated == pytest.approx(row.measured, abs=0.08), row


def test_slow_indices_are_neighbours_where_they_were_measured_to_be(compared: dict[str, list[Comparison]]) -> None:
    for row in compared["neighbour correlation at 0.5"]:
        if row.preset in ("persistent", "bimodal"):
            assert min(row.measured, row.generated) > 0.35, row
        else:
            assert max(row.measured, row.generated) < 0.35, row


def test_slow_indices_have_no_short_memory_in_the_traces(traces: list[tuple[DelayProfile, str]]) -> None:
    """What the choice of the model rests on: consecutive rounds correlate no more than distant ones."""
    half = [summarise(trace).straggling[1] for trace, preset in traces if preset == "persistent"]
    lag1 = [at.lag1_correlation for at in half if at.lag1_correlation is not None]
    all_lags = [at.correlation for at in half if at.correlation is not None]
    assert len(lag1) == len(all_lags) == 5
    assert np.mean(all_lags) > 0.08
    assert np.mean(lag1) == pytest.approx(np.mean(all_lags), abs=0.02)


@pytest.mark.parametrize("preset", ["scattered", "outliers", "persistent"])
def test_outliers_are_as_many_and_as_long_as_counted(traces: list[tuple[DelayProfile, str]], preset: str) -> None:
    parameters = PRESETS[preset]
    mine = [trace for trace, name in traces if name == preset]
    further_s = np.concatenate([(t.delays_s - np.median(t.delays_s, axis=1, keepdims=True)).ravel() for t in mine])
    outliers_s = further_s[further_s > 10.0]
    rounds = sum(trace.rounds for trace in mine)
    assert outliers_s.size / rounds == pytest.approx(parameters.outlier_rate * parameters.outlier_workers, rel=0.25)
    assert (outliers_s > 30.0).mean() == pytest.approx(parameters.outlier_long_share, abs=0.05)
    assert outliers_s.mean() == pytest.approx(_mean_outlier_s(parameters), rel=0.03)


def _mean_outlier_s(p: LambdaLike) -> float:
    return p.outlier_s + p.outlier_long_share * (p.outlier_long_s - p.outlier_s)


def test_most_figures_are_ones_that_the_generator_gives(compared: dict[str, list[Comparison]]) -> None:
    rows = [row for figure in compared.values() for row in figure]
    assert np.mean([row.agrees for row in rows]) > 0.75


def test_a_preset_does_not_agree_with_another_region(traces: list[tuple[DelayProfile, str]]) -> None:
    """The control: the same comparison refuses the wrong preset."""
    trace = next(trace for trace, preset in traces if preset == "persistent" and trace.load == 0.5)
    assert np.mean([row.agrees for row in compare(trace, "outliers", SEEDS)]) < 0.5
