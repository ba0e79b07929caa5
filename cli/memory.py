"""Whether a job's largest model fits into its workers' memory, by the estimate that `gradmux doctor` tells as well.

Knows no backend. Read next: `infra/aws/doctor/needs.py`, which estimates.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from torch import nn

from gradmux.infra.aws.doctor.needs import OVERSHOT, memory_mb
from gradmux.orchestrator.errors import ConfigError

log = logging.getLogger(__name__)


def largest_bytes(modules: Iterable[nn.Module]) -> int:
    """Parameters and buffers of the largest of them."""
    return max(sum(each.nbytes for each in (*module.parameters(), *module.buffers())) for module in modules)


def require_memory(modules: Iterable[nn.Module], has_mb: int) -> None:
    """Warns when the largest model may not fit. Raises: ConfigError when it cannot."""
    takes_mb = memory_mb(largest_bytes(modules))
    says = f"cluster.memory_mb = {has_mb}: a worker takes {takes_mb} MB for the largest model, and its batch on top"
    if takes_mb > has_mb * OVERSHOT:
        raise ConfigError(f"{says}; give it more")
    if takes_mb > has_mb:
        log.warning("%s: that is tight", says)
