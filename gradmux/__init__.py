"""gradmux: exact gradients from serverless workers, several PyTorch models side by side.

The public API; a name is imported when it is first used (PEP 562), since the worker's image imports this package too
and must stay small. Read next: `orchestrator/api.py`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradmux.orchestrator.api import Job, Model, Trained, train, train_reference

__all__ = ["Job", "Model", "Trained", "train", "train_reference"]

_HOMES = dict.fromkeys(__all__, "gradmux.orchestrator.api")
"""public name -> the module that defines it"""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
