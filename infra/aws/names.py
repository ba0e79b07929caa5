"""Every name of a deployment, known before anything exists: they follow from the stack's name, account and region.

Pure. The template makes the same names from `AWS::StackName`; a test holds the two together. Read next: `settings.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gradmux.infra.aws.errors import SettingsError

STACK_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]")
"""Short enough for a bucket's name, NAME-ACCOUNT-REGION, which has 63 characters at most."""
DOMAINS = {"aws-cn": "amazonaws.com.cn"}


@dataclass(frozen=True, slots=True)
class Account:
    """Where things are made."""

    id: str
    region: str
    partition: str = "aws"

    @classmethod
    def of(cls, caller_arn: str, region: str) -> Account:
        """From the ARN of whoever is asking: arn:PARTITION:sts::ACCOUNT:..."""
        _, partition, _, _, account, *_ = caller_arn.split(":")
        return cls(account, region, partition)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one deployment."""

    stack: str
    account: Account

    def __post_init__(self) -> None:
        if not STACK_NAME.fullmatch(self.stack):
            raise SettingsError(
                f"name {self.stack!r}: use lower-case letters, digits and '-', beginning with a letter, 2 to 32 of them"
            )

    @property
    def function(self) -> str:
        return f"{self.stack}-worker"

    @property
    def function_arn(self) -> str:
        return self._arn("lambda", f"function:{self.function}")

    @property
    def bucket(self) -> str:
        """Of the deployment's own bucket."""
        return f"{self.stack}-{self.account.id}-{self.account.region}"

    @property
    def repository(self) -> str:
        return f"{self.stack}-worker"

    @property
    def registry(self) -> str:
        """Host of the account's image registry."""
        domain = DOMAINS.get(self.account.partition, "amazonaws.com")
        return f"{self.account.id}.dkr.ecr.{self.account.region}.{domain}"

    @property
    def project(self) -> str:
        """The build project."""
        return f"{self.stack}-image"

    @property
    def log_group(self) -> str:
        return f"/aws/lambda/{self.function}"

    def image(self, tag: str) -> str:
        """URI of an image in the deployment's own repository."""
        return f"{self.registry}/{self.repository}:{tag}"

    def stack_arn(self) -> str:
        """Of any stack with this name."""
        return self._arn("cloudformation", f"stack/{self.stack}/*")

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:{self.account.partition}:{service}:{self.account.region}:{self.account.id}:{resource}"
