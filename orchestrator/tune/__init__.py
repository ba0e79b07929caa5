"""Which scheme, parameters and number of workers suit a job, by time or by money.

    options.py    what may be chosen from, and the aim
    material.py   the measured profile made ready: failures, load model, concurrency
    search.py     everything worth trying, evaluated;  money.py: what it costs
    robust.py     the best few over resampled profiles;  result.py: the answer
    by_hand.py    a plain map, and this machine alone: what all of it is compared with
    fitting.py    pipeline-auto, which has nothing to tune and fits itself to the delays
    playing.py    what the evaluator does not cover, played by the loop;  sampling.py: parameters for that
    tuner.py      `tune`, the steps;  plot.py: the front of time and money as a picture

Read next: `tuner.py`.
"""

from gradmux.orchestrator.tune.options import SCHEMES, TuneOptions
from gradmux.orchestrator.tune.result import Choice, CrossValidation, Spread, TuneResult
from gradmux.orchestrator.tune.tuner import tune

__all__ = ["SCHEMES", "Choice", "CrossValidation", "Spread", "TuneOptions", "TuneResult", "tune"]
