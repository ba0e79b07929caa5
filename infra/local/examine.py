"""The doctor's look at an emulator: the checks of an account, through a door that leads to the emulator alone.

Read next: `infra/aws/doctor/examine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gradmux.infra.aws.account import account_errors
from gradmux.infra.aws.conform import Place
from gradmux.infra.aws.doctor import Needs, examine_account
from gradmux.infra.aws.door import BotoDoor, Door
from gradmux.infra.closed_session import closed_session
from gradmux.infra.local import Emulator, EmulatorConfig, detached
from gradmux.infra.local.backend import BUCKET, REGION, emulator_errors, start_emulator
from gradmux.infra.local.launch import Started
from gradmux.orchestrator.backends import Examination
from gradmux.orchestrator.findings import Finding


def examine(asked: Examination) -> Iterator[Finding]:
    """Every finding. An emulator that is started for it ends with it. Raises: PreflightError."""
    with account_errors(), emulator_errors(), _emulator(asked) as (door, function):
        yield from examine_account(door, Needs.of(asked, function, BUCKET, local=True))


@contextmanager
def _emulator(asked: Examination) -> Iterator[tuple[Door, str]]:
    """The emulator of `local up` when it is asked for and runs, else one of our own; and the function's name."""
    running = detached.status(asked.home) if asked.service else None
    if running is not None:
        yield _closed_door(running.started), running.started.config["function"]
        return
    with Emulator(EmulatorConfig(warm=1)) if asked.job is None else start_emulator(asked.job) as emulator:
        yield _closed_door(emulator.started), emulator.config.function


def _closed_door(started: Started) -> Door:
    """Leads to the emulator alone; the bucket that jobs use there is made."""
    s3_url, secret = started.s3_endpoint, started.secret
    endpoints = {"lambda": started.lambda_endpoint, "s3": s3_url, "sts": s3_url}
    door = BotoDoor.closed(REGION, endpoints, secret.access_key, secret.secret_key)
    door.call("s3", "create_bucket", {"Bucket": BUCKET})
    return door


@contextmanager
def emulated() -> Iterator[Place]:
    """An emulator of one's own, as `gradmux conform` looks at it: its session knows nothing else."""
    with emulator_errors(), Emulator(EmulatorConfig(warm=1)) as emulator:
        started = emulator.started
        _closed_door(started)
        session = closed_session(REGION, started.secret.access_key, started.secret.secret_key)
        yield Place(session, started.lambda_endpoint, started.s3_endpoint, emulator.config.function, BUCKET)
