"""Does an endpoint do what we assume of AWS? Every assumption is tried, in minutes and for cents.

Read first: `checks.py`; then `lambda_checks.py` and `store_checks.py`.
"""

from gradmux.infra.aws.conform.checks import Place, Result, State, conform
from gradmux.infra.aws.conform.report import document, lines

__all__ = ["Place", "Result", "State", "conform", "document", "lines"]
