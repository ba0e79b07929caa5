"""By what a run is billed: prices, and the memory of its function. What the bill counts is in `cost.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradmux.orchestrator.backends import Billed, find_backend
from gradmux.orchestrator.config import ClusterConfig
from gradmux.orchestrator.prices import Prices, load_prices
from gradmux.orchestrator.runs.life import last_life
from gradmux.orchestrator.runs.paths import RunPaths, prices_file


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a second and a call cost."""

    prices: Prices
    memory_mb: int


def tariff_of(paths: RunPaths, cluster: ClusterConfig) -> Tariff:
    """The user's own prices where there are any, else the backend's; memory and architecture of the workers as the last
    life found them, else as the job says, and x86.

    Raises: ConfigError when the table of prices cannot be read, FolderError.
    """
    prices, life = _prices(paths.prices, cluster), last_life(paths)
    billed = Billed() if life is None or life.place is None else life.place.billed
    return Tariff(prices.for_arm() if billed.arm else prices, billed.memory_mb or cluster.memory_mb)


def prices_at(home: Path, cluster: ClusterConfig) -> Prices:
    """Those of a job that is not a run yet: the user's own, else its backend's. Raises: ConfigError."""
    return _prices(prices_file(home), cluster)


def _prices(table: Path, cluster: ClusterConfig) -> Prices:
    return load_prices(table, find_backend(cluster.backend).prices)
