"""Has a backend's image the packages that a model's code imports? Asked before any worker is invoked.

What the code imports is seen where it is tried (`clean.py`), beyond what every worker has. Where that is not in the
image, the model is tried again as if it were not installed: a package that is only used where it is there does no harm.
Read next: `KnowsPackages` in `orchestrator/backends.py`; `infra/aws/packages.py`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from gradmux.lambda_worker.rehearsal import Part, Told
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Packages
from gradmux.orchestrator.training.trial.clean import clean_process
from gradmux.orchestrator.training.user_files import Origin, origin_of, places_now

WORKER = ("boto3", "cloudpickle", "isal", "msgspec", "numpy", "orjson", "pybase64", "safetensors", "torch")
"""distributions that every worker needs itself, and so has"""
NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")

log = logging.getLogger(__name__)

Ask = Callable[[], Packages]
"""asks the backend, once it matters"""


def require_packages(name: str, part: Part, told: Told, ask: Ask) -> None:
    """Raises ConfigError when the model's code needs a package that the image lacks; warns when that is not known."""
    foreign = _without(told.imported, with_needs(WORKER))
    if not foreign:
        return
    packages = ask()
    lacking = _without(foreign, with_needs(packages.names))
    if not lacking:
        return
    again = clean_process().ask(replace(part, hidden=frozenset(lacking)))
    if not again.error:
        return  # it does without
    missing = again.missing_module.partition(".")[0]
    module = missing if missing in lacking else min(lacking)
    says = f"model {name!r}: its code imports {module}, of the package {lacking[module]}, which {packages.where}"
    if packages.sure:
        raise ConfigError(f"{says} lacks: {packages.remedy}")
    log.warning("%s may lack: %s", says, packages.remedy)


def _without(modules: Iterable[str], distributions: frozenset[str]) -> dict[str, str]:
    """The modules that are installed here, and of none of these distributions: module -> a distribution of it."""
    found, owners_of = {}, importlib.metadata.packages_distributions()
    for module in modules:
        owners = [canonical(each) for each in owners_of.get(module, ())]
        if owners and not distributions.intersection(owners) and _is_installed(module):
            found[module] = owners[0]
    return found


def _is_installed(module: str) -> bool:
    """Not where it is the user's own, which travels by value."""
    spec = importlib.util.find_spec(module)
    file = None if spec is None else spec.origin
    return file is not None and origin_of(file, places_now()) is Origin.INSTALLED


def with_needs(names: Iterable[str]) -> frozenset[str]:
    """Distributions and all that they need, as far as they are installed here."""
    found: set[str] = set()
    waiting = [canonical(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _needs(name)
    return frozenset(found)


def _needs(name: str) -> list[str]:
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    named = [NAME.match(line) for line in lines if "extra ==" not in line]
    return [canonical(each[1]) for each in named if each is not None]


def canonical(name: str) -> str:
    """As PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", name).lower()
