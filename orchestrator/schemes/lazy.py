"""`lag-wk`, `lag-ps`, `g-lag`, `lagc`: lazily aggregated gradients; a shard is sent again when it has changed enough.

The batch is cut into M_s shards that never change (meant for full-batch gradient descent: batch_size = all rows). The
gradient of a step is the sum of each shard's gradient as it was last sent. With step size alpha, history D, weights xi,

    RHS_k = 1/(alpha^2 M_s^2) sum_{d=1..D} xi ||theta^{k+1-d} - theta^{k-d}||^2   (missing history counts 0).

lag-wk: the worker sends iff ||grad_m(theta^k) - grad_m(theta_hat_m)||^2 > RHS_k, where theta_hat_m are the weights of
its last sending. lag-ps: the orchestrator asks it iff L_m^2 ||theta_hat_m - theta^k||^2 > RHS_k; L_m is given, or the
largest ratio of gradient to weight changes seen so far. g-lag: the same for shards that a group of at least s + 1
workers holds whole, the first answer counts. lagc: each group carries an inner (n_q, s) code. In step 0 all send.

By hand, two shards, alpha = 1, D = 1, xi = 1, lag-ps with L = 0.4: step 0 asks both and moves theta by 2. At step 1,
RHS = 1/4 * 4 = 1 and L^2 ||theta_hat - theta||^2 = 0.64: no worker is asked, the same sum is applied, theta moves by 2
once more. At step 2 the drift is 4: 0.16 * 16 = 2.56 > 1, and both are asked.

Sources: Chen, Giannakis, Sun, Yin 2018, LAG (arXiv 1805.09965), (7) and (8); Zhang and Simeone 2019, LAGC (1905.09148),
whose stateless form this is. The loss and the counts that a step tells are, for a shard that was not sent, those of its
last sending. A resumed run starts with a full sending. Read next: `lazy_job.py`, `lazy_family.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradmux.orchestrator.schemes.lazy_job import LazyJob, Sent, Shards, reach
from gradmux.orchestrator.schemes.scheme import (
    Assignment,
    BoolArray,
    Context,
    Decoding,
    Key,
    Skip,
    StragglerModel,
)
from gradmux.orchestrator.schemes.stragglers import Covered, PerRound, choose_model
from gradmux.orchestrator.schemes.synchronous import SynchronousScheme


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a shard is sent again. `alphas` and `smoothness` are for gradient sums, not means."""

    by_worker: bool
    """True: the worker decides (WK); False: the orchestrator does (PS)"""
    alphas: tuple[float, ...]
    """of job t mod M; positive"""
    history: int
    """D"""
    xi: float
    smoothness: tuple[float, ...]
    """L_m of each shard; empty: estimated"""


class Lazy(SynchronousScheme[LazyJob]):
    """Shards over groups of workers, and the trigger that asks for them."""

    exact = False
    reuses_results = True

    def __init__(self, name: str, shards: Shards, tolerance: int, trigger: Trigger, context: Context) -> None:
        binary = all(inner.binary for inner in shards.codes)
        super().__init__(name, context, delay=0, chunk_sizes=shards.chunk_sizes(), binary=binary)
        self.shards, self.tolerance, self.trigger = shards, tolerance, trigger
        self._models, self._distances = context.models, context.distances
        self._sent: list[dict[int, Sent]] = [{} for _ in range(context.models)]
        self._smoothness: dict[tuple[int, int], float] = {}
        """(model, shard) -> L_m as seen so far"""
        self._changed: list[tuple[int, int, Sent, Sent]] = []
        """(model, shard, older, newer): sendings that an estimate of L_m may still learn from"""
        self.uploads = 0
        """shard gradients that were sent"""

    def assign(self, t: int) -> Assignment:
        """All workers of the shards that the trigger asks for."""
        sent = self._sent[t % self._models]
        self._learn_smoothness()
        threshold = self._threshold(t)
        asked = [q for q in range(self.shards.count) if self._asks(t, q, threshold)]
        self._active[t] = LazyJob(t, self.shards, asked, dict(sent))
        return {
            worker: (self.shards.task(t, worker, self._skip(t, q, threshold)),)
            for q in asked
            for worker in self.shards.members(q)
        }

    def heard(self, key: Key) -> None:
        """Counts for the job of its round."""
        job = self._active.get(key.round)
        if job is not None:
            job.add(key)

    def skipped(self, key: Key) -> None:
        """The shard stands as it was last sent."""
        job = self._active.get(key.round)
        if job is not None:
            job.unchanged.add(self.shards.owner[key.worker])

    def decode(self, job: int) -> Decoding:
        """The sum over shards; what is new is what stands from now on."""
        decoding = super().decode(job)
        sent = self._sent[job % self._models]
        for shard, fresh in self._active[job].fresh().items():
            if shard in sent:
                self._changed.append((job % self._models, shard, sent[shard], fresh))
            sent[shard] = fresh
            self.uploads += 1
        return decoding

    def keeps(self) -> frozenset[Key]:
        """Every result that stands for its shard, and what open jobs need."""
        standing = {key for sent in self._sent for each in sent.values() for key in each.weights}
        learning = {key for _, _, old, new in self._changed for each in (old, new) for key in each.weights}
        return super().keeps() | standing | (learning if self._estimates() else set())

    def needs_weights(self) -> frozenset[int]:
        """Where each shard was last sent, and the last D steps of every model."""
        standing = {each.job for sent in self._sent for each in sent.values()}
        learning = {each.job for _, _, old, new in self._changed for each in (old, new)}
        recent = range(max(0, self._closed - self._models * (self.trigger.history + 1)), self._closed + 1)
        return frozenset(standing | learning | set(recent))

    def wanted(self, t: int) -> tuple[int, ...]:
        """Whose answer would complete a shard."""
        job = self._active[t]
        return tuple(
            self.shards.first[q] + worker
            for q, reception in job.receptions.items()
            if q not in job.unchanged
            for worker in reception.helpful()
        )

    def straggler_model(self, name: str) -> StragglerModel:
        """s per shard's group, counted as s per round; "either" admits every set without which the round decodes."""
        per_round = PerRound(self.tolerance)
        if name == "either":
            return Covered(self._decodes_from)
        return choose_model(self.name, name, per_round, per_round)

    def _decodes_from(self, answered: BoolArray) -> bool:
        shards, job = self.shards, self._active[self._closed]
        return all(
            q in job.unchanged or shards.words[q].covers(answered[shards.first[q] : shards.first[q + 1]])
            for q in job.receptions
        )

    def _recoverable(self, t: int) -> bool:
        return True

    # --- the trigger -----------------------------------------------------------------------------

    def _threshold(self, t: int) -> float:
        """RHS_k of job t; without distances 0, so that everything is sent."""
        if self._distances is None:
            return 0.0
        trigger = self.trigger
        moved = sum(self._distances.weights(newer, older) for newer, older in reach(trigger.history, self._models, t))
        return trigger.xi * moved / (trigger.alphas[t % self._models] ** 2 * self.shards.count**2)

    def _asks(self, t: int, shard: int, threshold: float) -> bool:
        last = self._sent[t % self._models].get(shard)
        if last is None or self._distances is None or self.trigger.by_worker:
            return True
        given = self.trigger.smoothness
        smoothness = given[shard] if given else self._smoothness.get((t % self._models, shard))
        if smoothness is None:
            return True
        return smoothness**2 * self._distances.weights(t, last.job) > threshold

    def _skip(self, t: int, shard: int, threshold: float) -> Skip | None:
        last = self._sent[t % self._models].get(shard)
        if not self.trigger.by_worker or last is None or self._distances is None:
            return None
        return Skip(last.job, threshold)

    def _estimates(self) -> bool:
        return self._distances is not None and not self.trigger.by_worker and not self.trigger.smoothness

    def _learn_smoothness(self) -> None:
        """L_m >= ||change of the gradient|| / ||change of the weights||, over what was sent since the last look."""
        changed, self._changed = self._changed, []
        if not self._estimates():
            return
        assert self._distances is not None
        for model, shard, old, new in changed:
            moved = self._distances.weights(new.job, old.job)
            if moved > 0:
                ratio = (self._distances.gradients(new.weights, old.weights) / moved) ** 0.5
                self._smoothness[model, shard] = max(self._smoothness.get((model, shard), 0.0), ratio)
