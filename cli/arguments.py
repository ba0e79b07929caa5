"""Options that hold a table: `-p KEY=VALUE`, `--faults KIND=RATE,...`. Knows no command. Read next: `options.py`."""

from __future__ import annotations

import math

from gradmux.orchestrator.errors import ConfigError


def parse_parameters(given: tuple[str, ...]) -> dict[str, str]:
    """`("B=1", "W=2")` as a table. Raises: ConfigError for anything that is not KEY=VALUE, or a key given twice."""
    table: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise ConfigError(f"-p {text}: must be KEY=VALUE, for example -p s=2")
        if key in table:
            raise ConfigError(f"-p {text}: {key} is given twice")
        table[key] = value
    return table


def parse_faults(text: str, option: str = "--faults") -> dict[str, float]:
    """`"crash=0.02,throttle=0.05"` as a table. Raises: ConfigError; which kinds there are, the emulator says."""
    rates: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        kind, equals, rate = part.partition("=")
        try:
            value = float(rate) if equals else math.nan
        except ValueError:
            value = math.nan
        if not (kind and 0 <= value <= 1):
            raise ConfigError(f"{option} {part}: must be KIND=RATE with a rate from 0 to 1, for example crash=0.01")
        rates[kind] = value
    return rates
