"""The one exception of the emulator.

Knows nothing of processes. Read next: `emulator.py`.
"""

from __future__ import annotations


class EmulatorError(Exception):
    """The emulator cannot start, or is not what the caller thinks it is; the text is one line that says what to do."""
