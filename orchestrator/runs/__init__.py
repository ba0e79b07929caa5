"""The life of runs: their folders, locks, checkpoints and states, from submission to the end, whatever ends a process.

    prepare.py         everything about a job that can be wrong, found before any worker is invoked
    keep.py            the job in a folder of its own, and out of it again
    resuming.py        a run that is to go on: found or brought, its limits, whose code it is
    train.py           from a job to trained models: prepared, kept, played in a place that its backend opens, finished
    assemble.py        the parts of one life; workers.py its workers, aggregation.py where gradients are summed
    player.py          one life, as one loop or segment by segment; play.py a loop to its end, whatever that is
    checkpoints.py     what a life begins from (`orchestrator/start.py` counts); keeper.py saves it
    finish.py          weights, evaluation and result; cleanup.py what goes from the store
    task_failure.py, diverged.py, cancelling.py, stopping.py    how else a life ends
    cost.py, tariff.py, budget.py                               what it cost, and may cost

The folder of a run is the truth about it (`paths.py` names what lies in it); everything else, the index too, can be
made again from it. Knows no backend by name. Read next: `paths.py`, then `life.py` and `train.py`.
"""
