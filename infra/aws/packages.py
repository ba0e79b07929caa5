"""What is installed in the image of a deployed function: what its Dockerfile names, and the deployment's requirements.

Read next: `orchestrator/training/trial/packages.py`, which compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import AwsError
from gradmux.infra.aws.image import HERE
from gradmux.infra.aws.observe import TAG, Function, find_function, find_stack
from gradmux.infra.aws.settings import unpacked
from gradmux.orchestrator.ports import Packages

PINNED = re.compile(r"(?:^|\s)([A-Za-z0-9][A-Za-z0-9._-]*)==[0-9]", re.MULTILINE)
LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[|[=<>!~;@]|$)")
REMEDY = "put it into a file, and `gradmux deploy --requirements FILE`"
BUILT = "gradmux:python"
"""tag of a function: of which Python its image is; empty where the user has brought the image"""
STACK = "aws:cloudformation:stack-name"
"""AWS's own tag of what a stack has made"""


def pinned() -> frozenset[str]:
    """The packages that the Dockerfile names."""
    return frozenset(PINNED.findall((HERE / "Dockerfile").read_text(encoding="utf-8")))


def packages_of(door: Door, name: str) -> Packages:
    """What the image of this function has, as far as the account tells."""
    where, requirements = f"the image of function {name}", None
    try:
        function = find_function(door, name)
        requirements = None if function is None else _requirements(door, function)
    except AwsError:
        pass  # without rights, or without a network
    if requirements is None:
        return Packages(pinned(), where, REMEDY, sure=False)
    lines = [line.partition("#")[0].strip() for line in requirements.splitlines()]
    found = [LINE.match(line) for line in lines if line]
    names = {each[1] for each in found if each is not None}
    return Packages(pinned() | names, where, REMEDY, sure=None not in found)


def _requirements(door: Door, function: Function) -> str | None:
    """Those that its image was built with; None where it is not of our making, or that is not told."""
    if not function.tags.get(BUILT):
        return None
    stack = _stack_parameters(door, function.tags.get(STACK) or function.tags.get(TAG, ""))
    if stack is not None:
        return unpacked(stack.get("Requirements", ""))
    return unpacked(function.configuration.get("Environment", {}).get("Variables", {}).get("GRADMUX_REQUIREMENTS", ""))


def _stack_parameters(door: Door, name: str) -> Mapping[str, str] | None:
    """None where no stack has made the function."""
    stack = find_stack(door, name) if name else None
    return None if stack is None else stack.parameters
