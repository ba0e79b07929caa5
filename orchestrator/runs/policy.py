"""Wait policy and limits as a job file has them, made into the loop's own.

Knows no scheme by name and no fleet. Read next: `orchestrator/policies.py`.
"""

from __future__ import annotations

from dataclasses import replace

from gradmux.orchestrator.auto import AutoJob
from gradmux.orchestrator.backends import find_backend
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.policies import Limits, limits_of
from gradmux.orchestrator.schemes.asks import SelfNormalises
from gradmux.orchestrator.schemes.checked import Checked
from gradmux.orchestrator.schemes.scheme import Scheme


def limits(config: JobConfig) -> Limits:
    """What bounds the run of a job."""
    scheme, cluster = config.scheme, config.cluster
    return replace(
        limits_of(scheme.closing, cluster.concurrency),
        attempts=cluster.attempts,
        deadline_s=scheme.deadline_s,
        approximate=scheme.approximate,
    )


def auto_job(config: JobConfig, models: int, passes: int, parameters: int = 0) -> AutoJob:
    """What bounds the choice of `auto`, and by what it chooses. `parameters`: of a model, on average.

    Of more workers than a batch has `passes` some would have nothing to do.
    """
    return AutoJob(
        models=models,
        steps=config.training.steps,
        workers=min(config.cluster.most_workers, passes),
        concurrency=config.cluster.concurrency,
        closing=config.scheme.closing,
        max_load=config.scheme.max_load,
        seed=config.training.seed,
        hour_usd=config.cluster.waiting_usd,
        prices=find_backend(config.cluster.backend).prices,
        memory_mb=config.cluster.memory_mb,
        parameters=parameters,
        passes=passes,
        attempts=config.cluster.attempts,
        timeout_s=config.cluster.timeout_s,
    )


def divided_by(scheme: Scheme, batch_rows: int) -> int | None:
    """Rows that the sum of an estimate is divided by; None: those that were decoded, where the scheme asks for that."""
    asked = Checked.of(scheme).inner
    return None if isinstance(asked, SelfNormalises) and asked.self_normalised else batch_rows
