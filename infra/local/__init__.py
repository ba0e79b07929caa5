"""Lambda and S3 on this machine: the same calls, limits and failures as on AWS, over workers forked from one process.

    Emulator(EmulatorConfig(...))      a context manager; nothing is left after it
    DelayPlan, FaultPlan               what is injected
    up, status, down                   the same as a service that outlives its parent
    EmulatorError                      why it cannot be

Read next: `emulator.py`.
"""

from gradmux.infra.local.client import AdminClient
from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.detached import State, down, status, up
from gradmux.infra.local.emulator import Emulator
from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.faults import FaultKind, FaultPlan, FaultRate, ScheduledFault
from gradmux.infra.local.injection import DelayPlan

__all__ = [
    "AdminClient",
    "DelayPlan",
    "Emulator",
    "EmulatorConfig",
    "EmulatorError",
    "FaultKind",
    "FaultPlan",
    "FaultRate",
    "ScheduledFault",
    "State",
    "down",
    "status",
    "up",
]
