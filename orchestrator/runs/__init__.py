"""The life of runs: their folders, locks, checkpoints and states, from submission to the end, whatever ends a process.

The folder of a run is the truth about it (`paths.py` names what lies in it); everything else, the index too, can be
made again from it. Knows no backend and no torch. Read next: `paths.py`, then `life.py` and `play.py`.
"""
