"""How long workers take: measured, generated, described and drawn.

    profile.py      DelayProfile: (rounds, workers) seconds, and what can be drawn from it
    formats.py      .npz and CSV, read and written
    generators.py   shifted exponential, bursty, Lambda-like: one `generate` for all
    lambda_like.py  the model behind the Lambda-like presets
    presets.py      its numbers, fitted on measured traces
    statistics.py   ProfileSummary: straggler share, bursts, persistence, tail, slope with load
    text.py         heat map and tail for a terminal
    plots.py        the same as PNG or SVG

Knows no scheme, no fleet and no cloud. Read next: `profile.py`.
"""

from orchestrator.delays.formats import load_profile, save_profile
from orchestrator.delays.generators import GENERATORS, Bursty, ShiftedExponential, generate, parameters_for
from orchestrator.delays.lambda_like import LambdaLike
from orchestrator.delays.presets import PRESETS
from orchestrator.delays.profile import DelayProfile

__all__ = [
    "GENERATORS",
    "PRESETS",
    "Bursty",
    "DelayProfile",
    "LambdaLike",
    "ShiftedExponential",
    "generate",
    "load_profile",
    "parameters_for",
    "save_profile",
]
