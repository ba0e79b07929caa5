"""The doctor's look at an account, for a job, or for a deployment. Read next: `examine.py`."""

from __future__ import annotations

from collections.abc import Iterator

from gradmux.infra.aws.account import account_errors, open_account
from gradmux.infra.aws.doctor.examine import examine_account
from gradmux.infra.aws.doctor.needs import Needs
from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import NO_REGION
from gradmux.infra.aws.observe import find_stack
from gradmux.orchestrator.backends import Examination
from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.findings import Finding


def examine(asked: Examination) -> Iterator[Finding]:
    """Every finding. Raises: PreflightError when there is nothing to look at."""
    with account_errors():
        door = open_account()
        if asked.job is None and not door.region:
            raise PreflightError(f"{NO_REGION}; or look at the emulator: `gradmux doctor --local`")
        function, bucket = _names(door, asked)
        yield from examine_account(door, Needs.of(asked, function, bucket))


def _names(door: Door, asked: Examination) -> tuple[str, str]:
    """Function and bucket: of the options, else of the job, else of the deployment."""
    name, function, bucket = asked.named.get("name", "gradmux"), asked.named.get("function"), asked.named.get("bucket")
    if asked.job is not None:
        return function or asked.job.cluster.function, bucket or asked.job.cluster.bucket or ""
    if bucket is None:
        stack = find_stack(door, name)
        if stack is None:
            raise PreflightError(
                f"there is no deployment {name} in {door.region}: run `gradmux deploy`, "
                "or name what you have by --function and --bucket"
            )
        bucket = stack.outputs.get("BucketName", "")
    return function or f"{name}-worker", bucket
