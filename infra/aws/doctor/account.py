"""The account: whose credentials, whose clock is right, how many invocations at a time.

Read next: `function.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any

from gradmux.infra.aws.doctor.needs import Needs
from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import ApiError, AwsError
from gradmux.orchestrator.findings import Finding, failure, warning, well

SKEW_S = 60.0
WORST_SKEW_S = 240.0
"""AWS refuses signatures that are more than 5 minutes off."""
NEW_ACCOUNT = 50
"""An account that has never asked for more may have as few as 10."""
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
WRONG = ("InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "InvalidAccessKeyId")


def identity(door: Door, now: Callable[[], float]) -> Iterator[Finding]:
    """Credentials, region and clock."""
    if not door.region:
        yield failure("region", "none", "set AWS_REGION, or region in the AWS profile")
        return
    try:
        caller = door.call("sts", "get_caller_identity", {})
    except ApiError as error:
        yield failure("credentials", f"{error.code}: {error.message}", _remedy(error.code))
        return
    except AwsError as error:
        yield failure("credentials", str(error), "run `aws configure`, log in, or set AWS_PROFILE; check the network")
        return
    yield well("credentials", f"{caller['Arn']}, account {caller['Account']}, region {door.region}")
    yield from _clock(caller, now())


def _remedy(code: str) -> str:
    if code in EXPIRED:
        return "log in again (`aws sso login`, or new temporary credentials); also check this machine's clock"
    if code in WRONG:
        return "these keys are not valid: check AWS_PROFILE and AWS_ACCESS_KEY_ID, and this machine's clock"
    return "see what AWS says"


def _clock(answer: dict[str, Any], now_s: float) -> Iterator[Finding]:
    """Signatures carry the time. AWS's comes in whole seconds."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if date is None:
        return
    skew_s = now_s - parsedate_to_datetime(date).timestamp()
    says = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} AWS"
    if abs(skew_s) >= WORST_SKEW_S:
        yield failure("clock", says, "set the clock (`timedatectl set-ntp true`): AWS refuses at 5 minutes")
    elif abs(skew_s) >= SKEW_S:
        yield warning("clock", says, "set the clock (`timedatectl set-ntp true`)")
    else:
        yield well("clock", "within a minute of AWS's")


def concurrency(door: Door, needs: Needs) -> Iterator[Finding]:
    """The invocations that may run at a time, against those that the job wants."""
    limits = door.call("lambda", "get_account_settings", {})["AccountLimit"]
    whole, free = limits["ConcurrentExecutions"], limits["UnreservedConcurrentExecutions"]
    reserved = _reserved(door, needs.function)
    available = free if reserved is None else reserved
    kind = (
        f"{free} of the account's {whole} unreserved" if reserved is None else f"{reserved} reserved for the function"
    )
    yield _judged(available, whole, kind, needs, reserved is not None)


def _reserved(door: Door, function: str) -> int | None:
    """The function's own share; None when it has none, or does not exist (which another check tells)."""
    try:
        told = door.call("lambda", "get_function_concurrency", {"FunctionName": function})
    except ApiError:
        return None
    reserved: int | None = told.get("ReservedConcurrentExecutions")
    return reserved


def _judged(available: int, whole: int, kind: str, needs: Needs, own_share: bool) -> Finding:
    more = "reserve more (`gradmux deploy --reserved`)" if own_share else _ask_for_more(needs)
    if available < (needs.workers or 1):
        says = f"{kind}: too few for {needs.workers or 1} workers at once"
        return failure("concurrency", says, f"{more}, or set cluster.workers = {available}", quota=True)
    if needs.concurrency is not None and available < needs.concurrency:
        says = f"{kind}, the job's limit is {needs.concurrency}"
        return warning("concurrency", says, f"set cluster.concurrency = {available}, else AWS refuses calls; or {more}")
    if whole <= NEW_ACCOUNT and needs.workers is None:
        return warning("concurrency", f"{kind}, as new accounts have", _ask_for_more(needs))
    return well("concurrency", kind)


def _ask_for_more(needs: Needs) -> str:
    wanted = needs.concurrency or needs.workers or 1000
    return (
        "ask for more: aws service-quotas request-service-quota-increase --service-code lambda "
        f"--quota-code L-B99A9384 --desired-value {wanted}"
    )
