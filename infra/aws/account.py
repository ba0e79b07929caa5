"""The user's AWS account: the door to it, and what it refuses as errors of ours. Read next: `door.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import boto3

from gradmux.infra.aws.door import BotoDoor
from gradmux.infra.aws.errors import AwsError, SettingsError, StepFailed
from gradmux.orchestrator.aws import new_session
from gradmux.orchestrator.errors import ConfigError, GradmuxError, PreflightError


@contextmanager
def account_errors() -> Iterator[None]:
    """Within it, what an account refuses is ours to tell: exit code 2 for settings that cannot be, 1 for a step that
    failed, else 3."""
    try:
        yield
    except SettingsError as error:
        raise ConfigError(str(error)) from error
    except StepFailed as error:
        raise GradmuxError(str(error)) from error
    except AwsError as error:
        raise PreflightError(str(error)) from error


def open_account() -> BotoDoor:
    """AWS, as its own tools would find it: profile, variables, endpoints."""
    return BotoDoor(boto3.Session(botocore_session=new_session()))
