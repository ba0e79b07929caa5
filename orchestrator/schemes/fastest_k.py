"""`fastest-k`: uncoded, but the round ends with the k-th answer, and the rest of the gradient is guessed from those.

The estimate is (n/k) times the sum of what is in: unbiased when every worker is as likely as any other to be slow, and
as noisy as a batch of k/n the size. With k = n it is `uncoded` exactly. The estimate
is divided by the batch's own count; `normalise = decoded` divides it by the count that was decoded, which differs where
workers have unequal numbers of rows, or of rows that count in the loss: the mean over the rows that came.

By hand, n = 4, k = 3: workers 0, 1 and 3 answer first, g ~ 4/3 (g_0 + g_1 + g_3). Read next: `approximate.py`.
"""

from __future__ import annotations

import math

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.codes import Codeword, FractionalCode
from gradmux.orchestrator.schemes.estimating import NORMALISE, StoppedFacts, self_normalised, shares_of
from gradmux.orchestrator.schemes.scheme import (
    Context,
    Decoding,
    Parameter,
    Params,
    Sample,
    Scheme,
    SchemeInfo,
    StragglerModel,
)
from gradmux.orchestrator.schemes.stragglers import PerRound, choose_model
from gradmux.orchestrator.schemes.synchronous import CodedJob, OneRoundScheme


class FastestJob(CodedJob):
    """Complete with `responses` (k) answers of n."""

    def __init__(self, job: int, word: Codeword, workers: int, responses: int) -> None:
        super().__init__(job, word)
        self._workers, self._responses = workers, responses

    @property
    def complete(self) -> bool:
        """Are k answers in?"""
        return len(self.useful()) >= self._responses

    def combine(self, estimate: bool) -> Decoding:
        """n/k times the sum; the plain sum, which is the least-squares combination, when a deadline asks for that."""
        if estimate:
            return super().combine(estimate=True)
        keys = self.useful()
        assert self.complete, f"{self._responses - len(keys)} more answers are needed"
        factor, heard = self._workers / len(keys), len(keys) / self._workers
        return Decoding(
            weights=dict.fromkeys(keys, factor),
            residual=max(1.0, factor - 1.0) if heard < 1.0 else 0.0,
            amplification=math.sqrt(factor),
            missing=heard * (factor - 1.0) ** 2 + (1.0 - heard),
        )


class FastestK(OneRoundScheme):
    """Uncoded, stopped at k."""

    def __init__(self, responses: int, context: Context, *, self_normalised: bool) -> None:
        super().__init__("fastest-k", FractionalCode(context.workers, 0, redraw=False), context)
        self.responses, self.self_normalised = responses, self_normalised
        self.exact = self.binary = responses == context.workers

    def _new_job(self, job: int) -> FastestJob:
        return FastestJob(job, self.code.draw(job), self.workers, self.responses)

    def wanted(self, t: int) -> tuple[int, ...]:
        """All who have not answered, until k have."""
        return () if self._active[t].complete else super().wanted(t)

    def straggler_model(self, name: str) -> StragglerModel:
        """n - k per round."""
        per_round = PerRound(self.workers - self.responses)
        return choose_model(self.name, name, per_round, per_round)


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when k does not fit n."""
    responses = int(params["responses"])
    if not 1 <= responses <= context.workers:
        raise ConfigError(
            f"fastest-k: k (responses) = {responses} does not fit {context.workers} workers: "
            f"use 1 <= k <= {context.workers}"
        )
    return FastestK(responses, context, self_normalised=self_normalised(params))


def grid(workers: int, models: int) -> list[Params]:
    """What is worth trying."""
    return [{"responses": k} for k in shares_of(workers)]


INFO = SchemeInfo(
    name="fastest-k",
    title="Ignore stragglers: an estimate from the first k answers",
    build=build,
    parameters=(Parameter("responses", "k", int, None, "answers that end a round"), NORMALISE),
    constraints="1 <= k <= n",
    load="1/n",
    delay="0",
    tolerates="any n - k per round, at the price of an estimate (unbiased when all are as likely to be slow)",
    costs="no extra work; steps as noisy as with k/n of the batch",
    avoid="when slow workers are always the same: their rows are then never seen; or when results must be exact",
    source="baseline (ignore stragglers)",
    example="n = 4, k = 3: workers 0, 1 and 3 answer first, g ~ 4/3 (g_0 + g_1 + g_3).",
    grid=grid,
    sample=Sample(4, {"k": 3}, late={0: (2,), 1: (0,)}),
    facts=StoppedFacts(coded=False),
)
