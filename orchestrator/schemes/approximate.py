"""`agc`: approximate gradient coding, ErasureHead (Wang et al. 2019): fractional groups, and no wait for the last ones.

n workers in G = n // c groups, c = s + 1. The round ends with the r-th answer or as soon as every group is covered,
whichever is first. Group q, of c_q workers, is not covered with probability p_q = C(n - c_q, r) / C(n, r) when all
orders of arrival are equally likely, so sum over the covered q of g_q / (1 - p_q) is unbiased. When all are covered,
weights of 1 give the gradient itself; `unbiased = true` keeps the factors even then, without which the mean is slightly
too large. r = n waits for every group: exact. An estimate is divided by the batch's own count, as in the paper;
`normalise = decoded` divides it by the count that was decoded with the same factors: a mean over the rows that came,
which is less noisy and slightly biased, and in which equal factors cancel.

By hand, n = 4, s = 1, r = 2: two groups of 2, p = C(2, 2) / C(4, 2) = 1/6. Both answers are of group 0:
g ~ 6/5 g_0. They are of different groups: g = g_0 + g_1, or 6/5 of it when strictly unbiased.
Read next: `grouping.py`.
"""

from __future__ import annotations

import math

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.codes.fractional import FractionalWord
from gradmux.orchestrator.schemes.constraints import require_tolerance
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

FLAG = ("false", "true")


def uncovered(workers: int, size: int, responses: int) -> float:
    """p: the chance that none of `size` workers is among the first `responses` of n, all orders equally likely."""
    return math.comb(workers - size, responses) / math.comb(workers, responses)


class ErasureJob(CodedJob):
    """One job: complete when covered, or with `responses` (r) answers."""

    def __init__(self, job: int, word: FractionalWord, responses: int, unbiased: bool) -> None:
        super().__init__(job, word)
        self._groups, self._responses, self._unbiased = word, responses, unbiased

    @property
    def complete(self) -> bool:
        """Is every group covered, or are r answers in?"""
        return self.reception.complete or self._heard >= self._responses

    @property
    def _heard(self) -> int:
        return int(np.count_nonzero(self.reception.received))

    def combine(self, estimate: bool) -> Decoding:
        """The first answer of each covered group, over the chance that it would be covered."""
        if estimate or (self.reception.complete and not self._unbiased):
            return super().combine(estimate)
        assert self.complete, f"{self._responses - self._heard} more answers are needed"
        factors = {self._key(worker): self._factor(worker) for worker in self.reception.useful()}
        error = np.ones(self._groups.chunks)
        for key, factor in factors.items():
            error[self._groups.group[key.worker]] = factor - 1.0
        norm = math.sqrt(sum(factor**2 for factor in factors.values()) / self._groups.workers)
        return Decoding(factors, float(np.abs(error).max()), norm, float(np.mean(error**2)))

    def _factor(self, worker: int) -> float:
        """1 / (1 - p_q) of the worker's group; more than r answers are in when they came while the round closed."""
        size = len(self._groups.members(self._groups.group[worker]))
        return 1.0 / (1.0 - uncovered(self._groups.workers, size, max(self._responses, self._heard)))


class ErasureHead(OneRoundScheme):
    """Fractional groups, stopped at r."""

    def __init__(
        self, stragglers: int, responses: int, context: Context, *, unbiased: bool, self_normalised: bool
    ) -> None:
        code = FractionalCode(context.workers, stragglers, context.seed)
        super().__init__("agc", code, context)
        self.groups, self.responses, self.unbiased = code, responses, unbiased
        self.self_normalised = self_normalised
        self.exact = self.binary = responses == context.workers

    def _new_job(self, job: int) -> ErasureJob:
        return ErasureJob(job, self.groups.draw(job), self.responses, self.unbiased)

    def wanted(self, t: int) -> tuple[int, ...]:
        """The members of uncovered groups, until r have answered."""
        return () if self._active[t].complete else super().wanted(t)

    def straggler_model(self, name: str) -> StragglerModel:
        """n - r per round, or s when that is more."""
        per_round = PerRound(max(self.workers - self.responses, self.groups.tolerance))
        return choose_model(self.name, name, per_round, per_round)


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when s or r does not fit n."""
    stragglers, responses = int(params["stragglers"]), int(params["responses"])
    require_tolerance("agc", stragglers, context.workers)
    if not 1 <= responses <= context.workers:
        raise ConfigError(
            f"agc: r (responses) = {responses} does not fit {context.workers} workers: use 1 <= r <= {context.workers}"
        )
    unbiased = params["unbiased"] == "true"
    return ErasureHead(stragglers, responses, context, unbiased=unbiased, self_normalised=self_normalised(params))


def grid(workers: int, models: int) -> list[Params]:
    """What is worth trying: s up to 3, each with some r."""
    tolerances = range(min(4, workers))
    return [{"stragglers": s, "responses": r} for s in tolerances for r in shares_of(workers)]


INFO = SchemeInfo(
    name="agc",
    title="Approximate gradient coding (ErasureHead): stop at r answers, or when all groups are covered",
    build=build,
    parameters=(
        Parameter("stragglers", "s", int, None, "each chunk is at s + 1 workers"),
        Parameter("responses", "r", int, None, "answers that end a round at the latest"),
        Parameter("unbiased", "unbiased", str, "false", "keep the factors 1/(1 - p) when all groups are covered", FLAG),
        NORMALISE,
    ),
    constraints="0 <= s < n, 1 <= r <= n",
    load="1/(n // (s+1))",
    delay="0",
    tolerates="any n - r per round, at the price of an estimate; exactly every set that contains no whole group",
    costs="s + 1 times the work of uncoded; a step now and then without some of the batch",
    avoid="when results must be exact (r = n is gc), or r is so small that groups are often missing",
    source="Wang, Charles, Papailiopoulos 2019, ErasureHead (arXiv 1901.09671)",
    example="n = 4, s = 1, r = 2: both answers come from group 0; p = 1/6, so g ~ 6/5 g_0.",
    grid=grid,
    sample=Sample(4, {"s": 1, "r": 2}, late={0: (1, 3), 1: (0, 2)}),
    facts=StoppedFacts(coded=True),
)
