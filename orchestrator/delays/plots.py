"""A delay profile as a picture: the heat map worker by round, and the tail. PNG or SVG, by the path's suffix.

Needs matplotlib, imported when the first picture is drawn; never touches its global state. Read next: `text.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gradmux.orchestrator.delays.profile import DelayProfile
from gradmux.orchestrator.delays.statistics import usable_answers
from gradmux.orchestrator.disk import require_writable
from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")


def save_heat_map(profile: DelayProfile, path: Path | str) -> None:
    """Workers from left to right, rounds from top to bottom, seconds as colour, logarithmic; failed ones are red."""
    target = picture_path(path)
    figure = new_figure()
    axes = figure.add_subplot()
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm

    answered = profile.delays_s[~profile.failed]
    low_s, high_s = max(float(answered.min()), 1e-3), float(answered.max())
    image = axes.imshow(
        np.where(profile.failed, np.nan, np.maximum(profile.delays_s, low_s)),
        norm=LogNorm(low_s, max(high_s, low_s * 1.001)),
        aspect="auto",
        interpolation="nearest",
        cmap=colormaps["viridis"].with_extremes(bad="tab:red"),
    )
    axes.set(xlabel="worker", ylabel="round", title=profile.name or "delays")
    figure.colorbar(image, ax=axes, label="seconds")
    figure.savefig(target)


def save_tail_plot(profiles: Sequence[DelayProfile], path: Path | str) -> None:
    """Share of the answers that take longer than so many seconds, both logarithmic; one line per profile."""
    target = picture_path(path)
    figure = new_figure()
    axes = figure.add_subplot()
    for index, profile in enumerate(profiles):
        delays_s = np.sort(profile.delays_s[usable_answers(profile)])
        slower = 1.0 - np.arange(len(delays_s)) / len(delays_s)
        axes.step(delays_s, slower, where="post", label=profile.name or f"profile {index}")
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="share of answers that take longer")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(target)


def picture_path(path: Path | str) -> Path:
    """`path`, if a picture can be written there. Raises: ConfigError in one line."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{target.name}: a picture is written as {' or '.join(SUFFIXES)}")
    require_writable(target)
    return target


def new_figure() -> Figure:
    """An empty figure. Raises: ConfigError when matplotlib is not there."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("pictures need matplotlib: pip install matplotlib") from error
    return Figure(figsize=(8, 5), layout="constrained")
