"""Wait policy and limits as users write them, on the command line or in a job file, made into the loop's own.

Knows no scheme and no fleet. Read next: `orchestrator/policies.py`.
"""

from __future__ import annotations

import math

from gradmux.orchestrator.auto import AutoJob
from gradmux.orchestrator.config import JobConfig, SchemeConfig
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.policies import Earliest, Limits, Mu, WaitPolicy


def wait_policy(scheme: SchemeConfig) -> WaitPolicy:
    """When a round closes."""
    if scheme.wait == "earliest":
        return Earliest()
    assert scheme.mu is not None
    return Mu(mu=scheme.mu, wait_out=scheme.wait_out, straggler_model=scheme.straggler_model or "either")


def limits(config: JobConfig) -> Limits:
    """What bounds the run of a job."""
    scheme, cluster = config.scheme, config.cluster
    return Limits(
        concurrency=cluster.concurrency,
        in_flight_cap=scheme.in_flight_cap,
        harvest_late=scheme.harvest_late,
        attempts=cluster.attempts,
        deadline_s=scheme.deadline_s,
        approximate=scheme.approximate,
    )


def auto_job(config: JobConfig, models: int) -> AutoJob:
    """What bounds the choice of `auto`."""
    return AutoJob(
        models=models,
        steps=config.training.steps,
        workers=config.cluster.most_workers,
        concurrency=config.cluster.concurrency,
        in_flight_cap=config.scheme.in_flight_cap,
        max_load=config.scheme.max_load,
        seed=config.training.seed,
    )


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


def parse_faults(text: str) -> dict[str, float]:
    """`"crash=0.02,throttle=0.05"` as a table. Raises: ConfigError; which kinds there are, the emulator says."""
    rates: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        kind, equals, rate = part.partition("=")
        try:
            value = float(rate) if equals else math.nan
        except ValueError:
            value = math.nan
        if not (kind and 0 <= value <= 1):
            raise ConfigError(f"--faults {part}: must be KIND=RATE with a rate from 0 to 1, for example crash=0.01")
        rates[kind] = value
    return rates
