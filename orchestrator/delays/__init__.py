"""How long workers take: measured, generated, described and drawn.

    profile.py      DelayProfile: (rounds, workers) seconds, and what can be drawn from it
    failures.py     when calls that fail are found: the rule for a delay that is missing
    formats.py      .npz and CSV, read and written
    from_record.py  a run's record as a profile
    generators.py   shifted exponential, bursty, Lambda-like, plug-ins: one `generate` for all
    lambda_like.py  the model behind the Lambda-like presets
    presets.py      its numbers, fitted on measured traces
    statistics.py   ProfileSummary: straggler share, bursts, persistence, tail, slope with load
    load_fit.py     base and slope from profiles at several loads, robust
    text.py         heat map and tail for a terminal
    plots.py        the same as PNG or SVG (matplotlib, imported when used)

Knows no scheme, no fleet and no cloud. Read next: `profile.py`.
"""

from gradmux.orchestrator.delays.failures import Failures
from gradmux.orchestrator.delays.formats import load_profile, save_profile
from gradmux.orchestrator.delays.from_record import from_lines, from_record
from gradmux.orchestrator.delays.generators import (
    GENERATORS,
    Bursty,
    DelayGenerator,
    ShiftedExponential,
    generate,
    parameters_for,
)
from gradmux.orchestrator.delays.lambda_like import LambdaLike
from gradmux.orchestrator.delays.load_fit import LoadFit, fit_load, theil_sen
from gradmux.orchestrator.delays.presets import PRESETS
from gradmux.orchestrator.delays.profile import DelayProfile
from gradmux.orchestrator.delays.statistics import ProfileSummary, Straggling, summarise

__all__ = [
    "GENERATORS",
    "PRESETS",
    "Bursty",
    "DelayGenerator",
    "DelayProfile",
    "Failures",
    "LambdaLike",
    "LoadFit",
    "ProfileSummary",
    "ShiftedExponential",
    "Straggling",
    "fit_load",
    "from_lines",
    "from_record",
    "generate",
    "load_profile",
    "parameters_for",
    "save_profile",
    "summarise",
    "theil_sen",
]
