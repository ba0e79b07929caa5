"""Thousands of parameter sets over one delay profile, in vectorised numpy: a second implementation, for speed alone.

    setting.py         what they are evaluated against;  batch.py: what is evaluated
    grids.py           batches worth trying;  worth_trying.py: their parameter sets, by scheme
    evaluator.py       one call for all schemes;  families.py: which schemes, and what is covered of them
    chance.py          everything random, drawn as the loop draws it;  draws.py: each round's delays and groups
    cover.py           when codes decode;  answers.py: the same with repeats, in absolute time
    timeline.py, in_flight.py, played.py   rounds behind each other under concurrency and in-flight cap
    one_round.py       uncoded, gc;  backup.py;  pipeline.py
    repeat.py          sr-sgc;  multiplexed.py: m-sgc, each closing as early as it may
    published/         the papers' wait rule, and the same schemes under it;  bits.py: sets of workers

A property test holds it to the loop (`simulate.simulate`) on every round's duration. Read next: `evaluator.py`.
"""

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.chance import Chance
from gradmux.orchestrator.evaluate.evaluator import Evaluator
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.setting import Setting

__all__ = ["Batch", "Chance", "Evaluator", "Played", "Setting"]
