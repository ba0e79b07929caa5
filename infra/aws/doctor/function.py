"""The function as Lambda describes it: state, size, limits, versions, and how often Lambda would repeat a call.

Read next: `handshake.py`, which calls it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradmux.infra.aws.doctor.needs import LEAST_SHARE, Needs
from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import ApiError, AwsError
from gradmux.infra.aws.observe import Function, find_function
from gradmux.lambda_worker.contract import PROTOCOL
from gradmux.orchestrator.findings import Finding, failure, warning, well

REASONS = {
    "ImageDeleted": "the image is gone from its repository: `gradmux deploy` builds it again",
    "ImageAccessDenied": "Lambda may not read the image: the repository's policy must let lambda.amazonaws.com",
    "InvalidImage": "Lambda cannot run the image: `gradmux deploy` builds one that it can",
    "EniLimitExceeded": "the account has no network interface left: take the function out of the VPC",
    "SubnetOutOfIPAddresses": "the VPC's subnets are full: take the function out of the VPC",
    "InsufficientRolePermissions": "the role lacks rights: see `gradmux deploy --policies`",
    "DisabledKMSKey": "the key that encrypts the function is disabled: enable it",
    "KMSKeyAccessDenied": "the role may not use the key that encrypts the function",
    "KMSKeyNotFound": "the key that encrypts the function is gone",
}
"""StateReasonCode, LastUpdateStatusReasonCode -> what to do."""
NEW_ACCOUNT_MB = 3008
"""The most that a function of a new account may have."""
TIGHT = 0.7
"""Share of the memory that a model may take before its batch's activations make it doubtful."""


def find(door: Door, name: str) -> Function | Finding:
    """The function, or why there is none."""
    try:
        found = find_function(door, name)
    except ApiError as error:
        return failure("function", str(error), "ask for lambda:GetFunction, see `gradmux deploy --policies`")
    except AwsError as error:
        return failure("function", str(error), "check network, endpoint and region")
    if found is None:
        return failure("function", f"there is no function {name} in {door.region}", "gradmux deploy; or another region")
    return found


def examine(function: Function, needs: Needs) -> Iterator[Finding]:
    """Everything that its description tells."""
    yield _state(function, needs.function)
    yield from _timeout(function, needs)
    yield from _memory(function, needs)
    yield from _versions(function, needs)
    if function.configuration.get("VpcConfig", {}).get("VpcId"):
        do = "leave the VPC, or give it an S3 gateway endpoint; workers need nothing but S3"
        yield warning("network", "the function is in a VPC", do)
    if function.retries != 0 and not needs.local:
        says = "Lambda repeats failed asynchronous calls twice" if function.retries is None else "Lambda repeats calls"
        yield warning("retries", says, "gradmux deploy sets MaximumRetryAttempts to 0; retries are the client's")


def _state(function: Function, name: str) -> Finding:
    told = function.configuration
    size = f"{told.get('MemorySize')} MB, {told.get('Timeout')} s, {told.get('Architectures', ['x86_64'])[0]}"
    for state in ("State", "LastUpdateStatus"):
        if told.get(state) == "Failed":
            code = told.get(f"{state}ReasonCode", "")
            says = f"{name}: {state} Failed: {told.get(f'{state}Reason', code)}"
            return failure("function", says, REASONS.get(code, "gradmux deploy"))
    if told.get("State", "Active") == "Pending" or function.updating:
        return failure("function", f"{name} is just being made or changed", "wait a minute, then repeat")
    if told.get("State") == "Inactive":
        return warning("function", f"{name}, {size}, asleep", "the first call wakes it and fails; repeat the command")
    return well("function", f"{name}, {size}")


def _timeout(function: Function, needs: Needs) -> Iterator[Finding]:
    """The client's idea of the timeout must be the function's."""
    has = function.configuration.get("Timeout")
    if needs.timeout_s is None or has is None or has == max(1, round(needs.timeout_s)):
        return
    worse = "is billed after the client gave it up" if has > needs.timeout_s else "ends before the client expects it"
    says = f"{has} s, the job says {needs.timeout_s:g} s: a slow worker {worse}"
    yield warning("timeout", says, f"set cluster.timeout_s = {has}, or gradmux deploy --timeout {needs.timeout_s:g}")


def _memory(function: Function, needs: Needs) -> Iterator[Finding]:
    has = function.configuration.get("MemorySize", 0)
    if needs.worker_mb is not None:
        takes = needs.worker_mb
        says = f"{has} MB; the largest model takes {takes} MB, and the activations of its batch"
        if takes > has:
            more = "; a new account has to ask AWS's support for that" if _rounded(takes) > NEW_ACCOUNT_MB else ""
            yield failure("memory", says, f"gradmux deploy --memory {_rounded(takes)}, or smaller models{more}")
            return
        if takes > TIGHT * has:
            yield warning("memory", says, f"gradmux deploy --memory {_rounded(takes)}")
            return
        yield well("memory", says)
    elif has < LEAST_SHARE and not needs.local:
        says = f"{has} MB are {has / 1769:.2f} of a processor: importing torch may outlast Lambda's 10 s of INIT"
        yield warning("memory", says, f"gradmux deploy --memory {LEAST_SHARE}, or more")


def _rounded(mb: int) -> int:
    """Enough that it is not tight any more, in steps of 256 MB."""
    return min(10_240, -(-round(mb / TIGHT) // 256) * 256)


def _versions(function: Function, needs: Needs) -> Iterator[Finding]:
    """What the image was built for, from the function's tags."""
    python, protocol = function.tags.get("gradmux:python"), function.tags.get("gradmux:protocol")
    if protocol not in (None, "", str(PROTOCOL)):
        says = f"the image speaks contract version {protocol}, this client {PROTOCOL}"
        yield failure("versions", says, "gradmux deploy, or the client of that version")
    elif python and python != needs.python:
        says = f"the image has Python {python}, this machine {needs.python}"
        yield failure("versions", says, "functions travel as bytecode: gradmux deploy from here, or use that Python")
    elif python:
        yield well("versions", f"Python {python}, torch {function.tags.get('gradmux:torch', '?')}")
