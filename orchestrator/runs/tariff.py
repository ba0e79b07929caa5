"""By what a run is billed: prices, and the memory of its function. What the bill counts is in `cost.py`."""

from __future__ import annotations

from dataclasses import dataclass

from gradmux.orchestrator.prices import Prices, load_prices
from gradmux.orchestrator.runs.life import last_life
from gradmux.orchestrator.runs.paths import RunPaths


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a second and a call cost."""

    prices: Prices
    memory_mb: int


def tariff_of(paths: RunPaths, memory_mb: int) -> Tariff:
    """The user's own prices where there are any; memory and architecture of the function as the last life found them,
    else `memory_mb`, as the job says, and x86.

    Raises: ConfigError when the table of prices cannot be read, FolderError.
    """
    prices, life = load_prices(paths.prices), last_life(paths)
    place = None if life is None else life.place
    if place is None:
        return Tariff(prices, memory_mb)
    return Tariff(prices.for_arm() if place.arm else prices, place.memory_mb or memory_mb)
