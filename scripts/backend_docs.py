"""Writes docs/adding-a-backend.md: `adding_a_backend_head.md`, then the tested example as it is: `make docs`.

A test holds the page to it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "adding-a-backend.md"
HEAD = Path(__file__).with_name("adding_a_backend_head.md")
"""Written by hand."""
EXAMPLE = ROOT / "tests" / "orchestrator" / "processes.py"


def render() -> str:
    """The whole page."""
    return f"{HEAD.read_text(encoding='utf-8')}\n```python\n{EXAMPLE.read_text(encoding='utf-8')}```\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
