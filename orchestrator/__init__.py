"""gradmux: coded gradients from serverless workers, several models side by side.

`Job`, `Model` and `train` are the Python door (`api.py`); they are imported when they are first asked for.
Read next: `loop.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api import Job, Model, train

__all__ = ["Job", "Model", "train"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from orchestrator import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
