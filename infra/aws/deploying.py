"""A deployment from its options to AWS: observed, planned, carried out; and its removal.

    wishes -> `Deployment.planned` (reads the account) -> a plan, which can be shown -> `carry_out`

Asks nothing and prints nothing: `gradmux deploy` and `gradmux destroy` do. Read next: `wishes.py`, then `plan.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from gradmux.infra.aws.account import open_account
from gradmux.infra.aws.destroy_plan import plan_destroy
from gradmux.infra.aws.direct_plan import plan_direct
from gradmux.infra.aws.docker import Docker, DockerCli
from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import AwsError
from gradmux.infra.aws.execute import Executor, OnStep
from gradmux.infra.aws.image import ImageSource, image_source
from gradmux.infra.aws.names import Account, Names
from gradmux.infra.aws.observe import Observed, find_account, observe
from gradmux.infra.aws.plan import Plan
from gradmux.infra.aws.settings import DeploySettings
from gradmux.infra.aws.stack_plan import plan_stack
from gradmux.infra.aws.template import policies
from gradmux.infra.aws.wishes import Wishes
from gradmux.orchestrator.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Deployment:
    """What there is to do for a deployment, and all that doing it takes."""

    name: str
    plan: Plan
    door: Door
    docker: Docker | None = None
    """None: nothing is built"""
    source: ImageSource | None = None
    cluster: dict[str, str] | None = None
    """what a job file needs to know: function, bucket, region, account; None for a removal"""

    @classmethod
    def planned(cls, wishes: Wishes) -> Self:
        """Brings the account to what is wished. Changes nothing yet. Raises: AwsError."""
        wishes.check()
        door, docker = open_account(), DockerCli()
        observed = observe(door, wishes.name, wishes.bucket)
        wanted = wishes.settled(observed)
        source = image_source(wanted.architecture, wanted.requirements)
        make = plan_stack if wanted.role is None else plan_direct
        plan = make(wanted, observed, source, docker.architecture())
        return cls(wanted.name, plan, door, docker, source, _cluster(wanted, observed))

    @classmethod
    def removal(cls, name: str, *, delete_data: bool) -> Self:
        """Removes all that `deploy` made, the bucket only with `delete_data`. Changes nothing yet. Raises: AwsError."""
        door = open_account()
        return cls(name, plan_destroy(observe(door, name), delete_data=delete_data), door)

    def carry_out(self, on_step: OnStep) -> None:
        """All steps of the plan. Raises StepFailed; what was done before stays done."""
        Executor(self.door, on_step, self.docker, self.source).run(self.plan, self.name)

    def to_dict(self) -> dict[str, Any]:
        """For --json: the plan, and what a job file needs to know."""
        return {**self.plan.to_json(), **(self.cluster or {})}


def rights(wishes: Wishes) -> tuple[dict[str, Any], str]:
    """The rights of workers and clients, as IAM takes them, and a warning.

    Where there are no credentials yet, placeholders stand for what they say; the warning names them, else it is empty.
    """
    wishes.check()
    door = open_account()
    try:
        account, warning = find_account(door), ""
    except AwsError as error:
        account = Account("<account>", door.region or "<region>")
        warning = f"{error}; put in what <account>{'' if door.region else ' and <region>'} stand for"
    names = Names(wishes.name, account)
    return policies(names, wishes.bucket or names.bucket, wishes.kms_key or ""), warning


def read_requirements(path: Path | None) -> str | None:
    """The text of a requirements file; None for none. Raises: ConfigError when it cannot be read."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _cluster(wanted: DeploySettings, observed: Observed) -> dict[str, str]:
    names, stack = observed.names, observed.stack
    used = stack.parameters.get("BucketName") if stack else None
    return {
        "function": names.function,
        "bucket": used or wanted.bucket or names.bucket,
        "region": names.account.region,
        "account": names.account.id,
    }
