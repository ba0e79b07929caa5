"""The scheme of a job that asks for none by name: `scheme = { name = "auto" }`.

    choice.py      what bounds a choice, and a choice with its reason
    measured.py    a segment's own delays, out of its record
    decide.py      which scheme suits these delays
    pilot.py       segment after segment: measure, choose, look again
    simulated.py   a whole run under auto in virtual time

Pure but for the record's lines: no clock, no fleet, no files. Read next: `pilot.py`; `runs/train.py` plays it for real.
"""

from gradmux.orchestrator.auto.choice import AUTO, AutoJob, Choice, plain, side_by_side
from gradmux.orchestrator.auto.pilot import Pilot, Segment, Watched

__all__ = ["AUTO", "AutoJob", "Choice", "Pilot", "Segment", "Watched", "plain", "side_by_side"]
