"""A delay profile by what the user calls it: a file (.npz, .csv, a run's record) or the name of a generator.

Knows no scheme. Read next: `orchestrator/delays/`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradmux.orchestrator.delays import DelayProfile

GENERATED_ROUNDS = 1000
GENERATED_WORKERS = 256
"""columns of a generator's draw, unless more workers are asked for: so every command draws the same for one seed"""


def find_profile(
    name: str, *, workers: int = GENERATED_WORKERS, seed: int, rounds: int = GENERATED_ROUNDS
) -> DelayProfile:
    """The profile called `name`; a generator makes `rounds` rounds of at least `workers` workers.

    Raises: ConfigError when there is neither such a file nor such a generator, or the file is no profile.
    """
    from gradmux.orchestrator.delays import generate
    from gradmux.orchestrator.delays.formats import load_profile
    from gradmux.orchestrator.delays.generators import kinds, known

    if known(name):
        return generate(name, rounds=rounds, workers=max(workers, GENERATED_WORKERS), seed=seed)
    path = Path(name)
    if path.exists():
        return load_profile(path)
    raise ConfigError(f"{name}: is neither a profile file nor a generator ({', '.join(kinds())})")


def profiles_by_seed(name: str, *, workers: int, first: tuple[int, DelayProfile]) -> Callable[[int], DelayProfile]:
    """Each seed's delays: a generator draws anew, a file stays as it is. `first`: a seed, and what was found for it."""
    from gradmux.orchestrator.delays.generators import known

    def profile_of(seed: int) -> DelayProfile:
        same = seed == first[0] or not known(name)
        return first[1] if same else find_profile(name, workers=workers, seed=seed)

    return profile_of
