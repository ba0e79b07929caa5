"""The front of time and money as a picture: PNG or SVG, by the path's suffix.

Needs matplotlib, imported when the picture is drawn; never touches its global state. Read next: `result.py`.
"""

from __future__ import annotations

from pathlib import Path

from gradmux.orchestrator.delays.plots import new_figure, picture_path
from gradmux.orchestrator.tune.result import Choice, TuneResult


def save_front(result: TuneResult, path: Path | str) -> None:
    """Dollars over seconds: the front as a line, the best of each scheme, the baselines, and the choice.

    Raises: ConfigError when the picture cannot be written.
    """
    target = picture_path(path)
    figure = new_figure()
    axes = figure.add_subplot()
    front = result.pareto
    axes.plot(
        [c.total_s for c in front], [c.cost_usd for c in front], "o-", ms=3, label="nothing is faster and cheaper"
    )
    for choice in result.choices:
        axes.plot(choice.total_s, choice.cost_usd, "s", label=f"best {_name(choice)}")
    for name, baseline in result.baselines.items():
        if baseline is not None:
            axes.plot(baseline.total_s, baseline.cost_usd, "x", label=f"by hand: {name}, n={baseline.workers}")
    best = result.best
    axes.plot(best.total_s, best.cost_usd, "*", ms=14, label=f"chosen: {_name(best)}")
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="US dollars")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(target)


def _name(choice: Choice) -> str:
    return f"{choice.scheme}, n={choice.workers}"
