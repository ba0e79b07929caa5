"""What `deploy`'s options say, laid over what is deployed: an option that is not given changes nothing.

Pure. Read next: `stack_plan.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gradmux.infra.aws.bucket_plan import kept_days
from gradmux.infra.aws.names import Account, Names
from gradmux.infra.aws.observe import TAG, Function, Observed, Stack
from gradmux.infra.aws.plan import Change
from gradmux.infra.aws.settings import Architecture, Builder, DeploySettings, unpacked
from gradmux.infra.aws.template import key_arn

NOTHING_RESERVED = 0
BUILT = ""
"""as --image: the one that we build, no longer a finished one"""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options. None: not given."""

    name: str = "gradmux"
    architecture: Architecture | None = None
    memory_mb: int | None = None
    timeout_s: int | None = None
    tmp_mb: int | None = None
    reserved: int | None = None
    """0: none any more"""
    log_days: int | None = None
    keep_days: int | None = None
    builder: Builder = Builder.AUTO
    """how to build is no property of what is built, so it is not kept"""
    requirements: str | None = None
    bucket: str | None = None
    role: str | None = None
    image: str | None = None
    """"": build it"""
    kms_key: str | None = None

    def check(self) -> None:
        """Raises SettingsError for what cannot be, whatever there is."""
        plain = {name: getattr(self, name) for name in FIELDS if getattr(self, name) not in (None, "")}
        if self.reserved == NOTHING_RESERVED:
            plain.pop("reserved")
        if self.role is not None and self.bucket is None:
            plain.pop("role")  # the bucket may be known from before
        DeploySettings(name=self.name, builder=self.builder, **plain)
        Names(self.name, Account("0", ""))

    def settled(self, observed: Observed) -> DeploySettings:
        """What is to be deployed: what was asked for, else what there is, else the defaults. Raises SettingsError."""
        has = {**_kept_in_bucket(observed), **_deployed(observed)}
        asked = {name: getattr(self, name) for name in FIELDS if getattr(self, name) is not None}
        if self.reserved == NOTHING_RESERVED:
            asked["reserved"] = None
        if self.image == BUILT or (self.image is None and self.requirements is not None):
            asked["image"] = None
        return DeploySettings(name=self.name, builder=self.builder, **{**has, **asked})


FIELDS = (
    *("architecture", "memory_mb", "timeout_s", "tmp_mb", "reserved", "log_days", "keep_days"),
    *("requirements", "bucket", "role", "image", "kms_key"),
)


def _deployed(observed: Observed) -> dict[str, Any]:
    """The settings that there are."""
    if observed.stack is not None:
        return _of_stack(observed.stack, observed.names)
    function = observed.function
    if function is not None and function.tags.get(TAG) == observed.names.stack:
        return _of_function(function, observed.names)
    return {}


def _kept_in_bucket(observed: Observed) -> dict[str, Any]:
    """What the bucket itself says: kept by `destroy` it keeps runs as before, and the user's keeps them for ever."""
    state = observed.bucket
    if state is None:
        return {}
    days = kept_days(state)
    if days is None and state.name != observed.names.bucket:
        days = 0
    told: dict[str, Any] = {} if days is None else {"keep_days": days}
    return {**told, "kms_key": state.key} if state.key else told


def _of_stack(stack: Stack, names: Names) -> dict[str, Any]:
    told = stack.parameters
    numbers = {"memory_mb": "MemoryMb", "timeout_s": "TimeoutS", "tmp_mb": "TmpMb", "log_days": "LogDays"}
    has: dict[str, Any] = {field: int(told[name]) for field, name in numbers.items() if told.get(name)}
    if told.get("MakeBucket") == "true" and told.get("KeepDays"):
        has["keep_days"] = int(told["KeepDays"])
    if told.get("Architecture"):
        has["architecture"] = Architecture(told["Architecture"])
    has["reserved"] = int(told["Reserved"]) if told.get("Reserved") else None
    if told.get("Requirements"):
        has["requirements"] = unpacked(told["Requirements"])
    if key := key_arn(told.get("KmsKey", ""), names):
        has["kms_key"] = key
    return {**has, **_own_image(told.get("ImageUri", ""), names)}


def _of_function(function: Function, names: Names) -> dict[str, Any]:
    told = function.configuration
    variables = told.get("Environment", {}).get("Variables", {})
    has: dict[str, Any] = {
        "architecture": Architecture(told.get("Architectures", ["x86_64"])[0]),
        "memory_mb": told.get("MemorySize", 2048),
        "timeout_s": told.get("Timeout", 60),
        "tmp_mb": told.get("EphemeralStorage", {}).get("Size", 512),
        "reserved": function.reserved,
        "role": told.get("Role"),
        "requirements": unpacked(variables.get("GRADMUX_REQUIREMENTS", "")),
        **_own_image(function.image, names),
    }
    if bucket := function.tags.get("gradmux:bucket"):
        has["bucket"] = bucket
    return has


def _own_image(uri: str, names: Names) -> dict[str, str]:
    """A finished image that the user brought stays; one that we built follows from its source."""
    return {"image": uri} if uri and not uri.startswith(names.image("")) else {}


# --- what changes ------------------------------------------------------------------------------------------------


def changes(observed: Observed, settings: DeploySettings) -> tuple[Change, ...]:
    """Each setting that is not as before; none where nothing is deployed yet."""
    has = {**_kept_in_bucket(observed), **_deployed(observed)}
    if not has:
        return ()
    kept = {name: has[name] for name in has if name not in ("bucket", "role", "image")}
    before = replace(settings, **kept, image=has.get("image"))
    made = [_change(name, getattr(before, name), getattr(settings, name)) for name in FIELDS]
    return tuple(change for change in made if change is not None)


def _change(name: str, old: Any, new: Any) -> Change | None:
    if old == new:
        return None
    option = name.removesuffix("_mb").removesuffix("_s").replace("_", "-")
    return Change(option, _told(name, old), _told(name, new), _loss(name, old, new))


def _told(name: str, value: Any) -> str:
    if name == "keep_days":
        return f"{value} days" if value else "for ever"
    if name == "requirements":
        lines = [line for line in value.splitlines() if line.strip()]
        return f"{len(lines)} lines" if lines else "none"
    if value is None or value == "":
        return {"image": "built by us"}.get(name, "none")
    unit = {"memory_mb": " MB", "tmp_mb": " MB", "timeout_s": " s", "log_days": " days"}.get(name, "")
    return f"{value}{unit}"


def _loss(name: str, old: Any, new: Any) -> str:
    """What is lost by it: empty where nothing is."""
    if name == "keep_days" and new and (old == 0 or new < old):
        return f"S3 deletes runs that are older than {new} days, for good"
    if name == "log_days" and new < old:
        return f"CloudWatch deletes logs that are older than {new} days"
    if name in ("memory_mb", "timeout_s", "tmp_mb") and new < old:
        return "jobs that need more will fail"
    if name == "reserved" and new is not None and (old is None or new < old):
        return f"no more than {new} calls at a time"
    return ""
