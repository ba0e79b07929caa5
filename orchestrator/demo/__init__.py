"""The demonstration: one job on real data under six schemes, on one emulator with one set of delays.

    models.py      the four models
    contest.py     what is run, and what was measured
    reference.py   the same batches in one ordinary process

`cli/demo_tables.py` tells it. Read next: `contest.py`.
"""
