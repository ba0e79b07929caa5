"""`uncoded`: every worker computes its own n-th of the batch, and the round lasts until all n have answered.

The baseline that every code must beat. Load 1/n, delay 0, tolerates no straggler.

By hand, n = 3: worker i computes g_i over chunk i (a third of the batch); g = g_0 + g_1 + g_2, weights all 1. While
worker 2 has not answered the round goes on. Read next: `gradient_coding.py`.
"""

from __future__ import annotations

from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.facts import Facts
from gradmux.orchestrator.schemes.scheme import Context, Params, Sample, Scheme, SchemeInfo, StragglerModel
from gradmux.orchestrator.schemes.stragglers import PerRound, choose_model
from gradmux.orchestrator.schemes.synchronous import OneRoundScheme


class Uncoded(OneRoundScheme):
    """One chunk per worker, all needed: the fractional code with s = 0, in worker order."""

    def __init__(self, context: Context) -> None:
        super().__init__("uncoded", FractionalCode(context.workers, 0, redraw=False), context)

    def straggler_model(self, name: str) -> StragglerModel:
        """No worker may straggle."""
        return choose_model(self.name, name, PerRound(0), PerRound(0))


def build(params: Params, context: Context) -> Scheme:
    """Takes no parameters."""
    assert not params
    return Uncoded(context)


INFO = SchemeInfo(
    name="uncoded",
    title="No redundancy: wait for every worker",
    build=build,
    parameters=(),
    constraints="none",
    load="1/n",
    delay="0",
    tolerates="no straggler",
    costs="no extra work; each round is as slow as the slowest worker",
    avoid="with many workers, or delays with a heavy tail",
    source="baseline",
    example="n = 3: worker i sends g_i of its third of the batch; g = g_0 + g_1 + g_2 once all three are in.",
    sample=Sample(3, late={1: (2,)}),
    facts=Facts(),
)
