"""`pipeline-auto` among the tuner's choices: it has nothing to tune, fits itself to the delays, and so carries over.

Fixed parameters are right for the profile on which they were found. What fits itself is played by the loop, which takes
longer than the evaluator, so over a few resampled profiles only. Read next: `tuner.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.errors import TaskFailed
from gradmux.orchestrator.policies import Limits
from gradmux.orchestrator.schemes.scheme import Expected, FloatArray
from gradmux.orchestrator.simulate import Simulation, SimulationOptions, simulate
from gradmux.orchestrator.tune.material import Material
from gradmux.orchestrator.tune.money import usd, worth
from gradmux.orchestrator.tune.options import FITTING, TuneOptions
from gradmux.orchestrator.tune.result import Choice, Spread

FITS = 0.1
"""what fits itself is taken although a fixed choice promises up to this share less: that is a promise of the best among
hundreds on one profile, and other delays break it"""


@dataclass(frozen=True, slots=True)
class Fitting:
    """How it does on the profile itself and on resampled ones."""

    choice: Choice
    values: FloatArray
    """(resamples,) what is to be least; on the profile itself where there are none"""


def allowed(options: TuneOptions) -> bool:
    """May it be chosen? Its load follows the delays, so that it keeps to no bound on the load."""
    return FITTING in options.schemes and options.max_load is None


def play_fitting(material: Material, options: TuneOptions, expected: Expected | None = None) -> Simulation:
    """One run, with as many workers to choose from as there may be; `expected`: what it begins with."""
    workers = min(material.columns, material.concurrency, max(options.workers or (material.columns,)))
    limits = Limits(concurrency=material.concurrency, attempts=options.attempts)
    played = SimulationOptions(
        options.jobs,
        options.models,
        limits=limits,
        load=material.load,
        failures=material.failures,
        workers=workers,
        seed=options.seed,
        worth=worth(options),
        expected=expected,
        passes=options.passes,
    )
    return simulate(material.delays_s, FITTING, {}, played)


def fitting(material: Material, resampled: list[Material], options: TuneOptions) -> Fitting:
    """Played on the profile, and on each of the resampled ones. Raises: TaskFailed when it stops on the profile."""
    runs = [_unless_it_stops(each, options) for each in resampled]
    whole = play_fitting(material, options)
    values = np.array([np.inf if run is None else _worth(run, options) for run in runs or [whole]])
    spread = Spread.of(np.array([np.inf if run is None else run.total_s for run in runs]))
    return Fitting(_choice(whole, options, spread), values)


def _unless_it_stops(material: Material, options: TuneOptions) -> Simulation | None:
    try:
        return play_fitting(material, options)
    except TaskFailed:
        return None


def _worth(run: Simulation, options: TuneOptions) -> float:
    return options.value(bill_of(run, options), run.total_s)


def _choice(run: Simulation, options: TuneOptions, spread: Spread | None) -> Choice:
    return Choice(
        scheme=FITTING,
        params={},
        workers=run.workers,
        total_s=run.total_s,
        load=run.load,
        in_flight_max=run.in_flight_max,
        billed_s=run.billed_s,
        cost_usd=bill_of(run, options),
        spread=spread,
    )


def bill_of(run: Simulation, options: TuneOptions) -> float:
    """Dollars for the whole run."""
    return float(usd(run.billed_s, run.invocations, run.invocations, options.jobs, options))
