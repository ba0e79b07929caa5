"""The table [emulator] of a job file. Read next: `backend.py`, which makes an emulator of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gradmux.orchestrator.config import Section


class EmulatorSection(Section):
    """How the local backend behaves: whose delays it plays and what goes wrong."""

    delays: str = "none"
    """ "none", a generator's name (lambda-like, bursty, ...), or the path of a profile (.npz, .csv)"""
    time_scale: Annotated[float, Field(gt=0)] = 1.0
    """multiplies every injected delay"""
    seed: Annotated[int, Field(ge=0)] = 0
    """of delays and faults"""
    faults: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """kind -> share of invocations that suffer it: { crash = 0.02 }; the kinds are in docs/runs.md"""
