"""The lazy family: what `lag-wk`, `lag-ps`, `g-lag` and `lagc` take, and how each is built from `lazy.Lazy`.

Read `lazy.py` for what they do.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.codes import CODES
from gradmux.orchestrator.schemes.constraints import require_tolerance
from gradmux.orchestrator.schemes.facts import BoolArray, Facts, FloatArray, IntArray, Sets, code_chunks, code_load
from gradmux.orchestrator.schemes.lazy import Lazy, Trigger
from gradmux.orchestrator.schemes.lazy_job import Shards
from gradmux.orchestrator.schemes.scheme import Context, Parameter, Params, Sample, Scheme, SchemeInfo


def _trigger(name: str, params: Params, context: Context, shards: Shards, *, by_worker: bool) -> Trigger:
    """Step size and smoothness of the mean loss, turned into those of sums over `samples`."""
    history, xi = int(params["history"]), float(params["xi"])
    if history < 1:
        raise ConfigError(f"{name}: D (history) = {history} is too small: use D >= 1, usually 10")
    if xi < 0:
        raise ConfigError(f"{name}: xi = {xi:g} must not be negative: use 0 for the usual value")
    usual = (1.0 if by_worker else 10.0) / history
    return Trigger(
        by_worker,
        tuple(alpha / context.samples for alpha in _step_sizes(name, float(params["alpha"]), context)),
        history,
        xi or usual,
        tuple(
            each * context.samples / shards.count
            for each in _smoothness(name, str(params.get("smoothness", "0")), shards.count)
        ),
    )


def _smoothness(name: str, text: str, shards: int) -> tuple[float, ...]:
    """L_m of the mean loss of each shard: from one number for all or one for each; empty when they are estimated."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{name}: L (smoothness) = {text!r} must be a number, or numbers with commas") from None
    if not all(0 <= each < float("inf") for each in found) or (0 in found and len(found) > 1):
        raise ConfigError(f"{name}: L (smoothness) = {text} must be positive, or 0 to have it estimated")
    if len(found) not in (1, shards):
        raise ConfigError(f"{name}: L (smoothness) has {len(found)} numbers: give 1, or {shards}, one for each shard")
    return () if found == [0] else tuple(found * (shards // len(found)))


def _step_sizes(name: str, alpha: float, context: Context) -> tuple[float, ...]:
    """Of every model: the one that was given, or their learning rates."""
    found = (alpha,) * context.models if alpha else context.rates
    if not found and context.distances is None:
        return (1.0,) * context.models  # a simulation, in which every trigger fires whatever the step size
    if len(found) != context.models or not all(each > 0 for each in found):
        given = ", ".join(f"{each:g}" for each in found) or "not known"
        raise ConfigError(f"{name}: alpha (step size) is {given}, but must be positive: give SGD's learning rate")
    return found


def build_single(name: str, by_worker: bool, params: Params, context: Context) -> Scheme:
    """One worker a shard: lag-wk and lag-ps."""
    shards = Shards(context.workers, context.workers, None, "fractional", context.seed)
    return Lazy(name, shards, 0, _trigger(name, params, context, shards, by_worker=by_worker), context)


def build_grouped(params: Params, context: Context) -> Scheme:
    """Groups of at least s + 1 workers that hold one shard each: g-lag."""
    stragglers = int(params["stragglers"])
    require_tolerance("g-lag", stragglers, context.workers)
    shards = Shards(context.workers, context.workers // (stragglers + 1), None, "fractional", context.seed)
    return Lazy("g-lag", shards, stragglers, _trigger("g-lag", params, context, shards, by_worker=False), context)


def build_coded(params: Params, context: Context) -> Scheme:
    """Groups with an inner (n_q, s) code: lagc."""
    groups, stragglers, code = int(params["groups"]), int(params["stragglers"]), str(params["code"])
    if not 1 <= groups <= context.workers:
        raise ConfigError(
            f"lagc: groups = {groups} does not fit {context.workers} workers: use 1 <= groups <= {context.workers}"
        )
    smallest = context.workers // groups
    if stragglers < 0:
        raise ConfigError(f"lagc: s (stragglers) = {stragglers} must be at least 0; use s <= {smallest - 1}")
    if stragglers >= smallest:
        raise ConfigError(
            f"lagc: s (stragglers) = {stragglers} does not fit groups of {smallest} workers: use s <= {smallest - 1}, "
            f"or at most {context.workers // (stragglers + 1)} groups"
        )
    shards = Shards(context.workers, groups, stragglers, code, context.seed)
    return Lazy("lagc", shards, stragglers, _trigger("lagc", params, context, shards, by_worker=False), context)


class LazyFacts(Facts):
    """One shard at each worker, if all are asked."""

    def __init__(self, *, computed: int = 1) -> None:
        """`computed`: how often, at other weights each time, a worker computes its shard for one job."""
        self._computed = computed

    def fits(self, sets: Sets) -> BoolArray:
        """D >= 1 too; alpha, xi and L are no matter of whole numbers, and change no fact."""
        return super().fits(sets) & (sets.ints("history") >= 1)

    def task_load(self, sets: Sets) -> FloatArray:
        """1/n, as often as it is computed."""
        return self._computed * super().task_load(sets)


class GroupedFacts(LazyFacts):
    """n // (s+1) shards, each at a group of workers."""

    def tolerance(self, sets: Sets) -> IntArray:
        """s."""
        return sets.ints("stragglers")


class InnerCodeFacts(LazyFacts):
    """G shards, each under an (n_q, s) code of its own group; groups differ by one worker at most."""

    def fits(self, sets: Sets) -> BoolArray:
        """1 <= G <= n, 0 <= s < n // G."""
        groups, stragglers = sets.ints("groups"), sets.ints("stragglers")
        found: BoolArray = (groups >= 1) & (groups <= sets.workers) & (sets.ints("history") >= 1)
        return found & (stragglers >= 0) & (stragglers < self._smallest(sets))

    def tolerance(self, sets: Sets) -> IntArray:
        """s, in each group."""
        return sets.ints("stragglers")

    def chunks(self, sets: Sets) -> IntArray:
        """Of the smallest group's shard."""
        return self._chunks_of(sets, self._smallest(sets))

    def parts(self, sets: Sets) -> IntArray:
        """Of all groups' shards."""
        smallest, groups = self._smallest(sets), sets.ints("groups")
        larger = sets.workers - groups * smallest
        return (groups - larger) * self.chunks(sets) + larger * self._chunks_of(sets, smallest + 1)

    def task_load(self, sets: Sets) -> FloatArray:
        """A row of the smallest group's code, which is the largest."""
        smallest, s = self._smallest(sets), sets.ints("stragglers")
        row = np.where(s == smallest - 1, 1.0, code_load(sets.code, smallest, s))
        return row / sets.ints("groups")

    def _smallest(self, sets: Sets) -> IntArray:
        """(P,) workers of the smallest group."""
        return sets.workers // np.maximum(sets.ints("groups"), 1)

    def _chunks_of(self, sets: Sets, workers: IntArray) -> IntArray:
        """(P,) of one group's shard: 1 where all of its workers but one may straggle."""
        s = sets.ints("stragglers")
        return np.where(s == workers - 1, 1, code_chunks(sets.code, workers, s))


ALPHA = Parameter("alpha", "alpha", float, 0.0, "step size; 0: the learning rate of plain SGD, each model's own")
HISTORY = Parameter("history", "D", int, 10, "steps whose lengths the trigger compares with")
XI = Parameter("xi", "xi", float, 0.0, "weight of each of those steps; 0: the usual 1/D (lag-wk) or 10/D")
SMOOTHNESS = Parameter(
    "smoothness", "L", str, "0", "smoothness constant of the mean loss of a shard, or one for each shard; 0: estimated"
)
STRAGGLERS = Parameter("stragglers", "s", int, None, "stragglers that each group tolerates")
INNER_CODE = Parameter("code", "code", str, "cyclic", "the code inside a group", CODES)

LAG = "Chen, Giannakis, Sun, Yin 2018 (arXiv 1805.09965)"
FULL_BATCH = "with random mini-batches: a shard must be the same rows in every step (batch_size = all rows, plain SGD)"

LAG_WK = SchemeInfo(
    name="lag-wk",
    title="Lazily aggregated gradients, the worker decides whether its gradient has changed enough to send",
    build=partial(build_single, "lag-wk", True),
    parameters=(ALPHA, HISTORY, XI),
    constraints="alpha >= 0, D >= 1",
    load="1/n, and as much again for the gradient at the weights of the last sending",
    delay="0",
    tolerates="no stragglers",
    costs="every shard is computed twice in every step; saves answers, not invocations",
    avoid=FULL_BATCH,
    source=LAG + ", trigger (8a)",
    example="Two shards; the second's gradient moves by 0.1 in norm while RHS = 0.04: 0.01 <= 0.04, it is not sent.",
    sample=Sample(3, {"D": 1, "xi": 1.0}, rounds=3, unchanged={1: (1, 2), 2: (1,)}),
    facts=LazyFacts(computed=2),
)
LAG_PS = SchemeInfo(
    name="lag-ps",
    title="Lazily aggregated gradients, the orchestrator asks the shards whose weights have drifted",
    build=partial(build_single, "lag-ps", False),
    parameters=(ALPHA, HISTORY, XI, SMOOTHNESS),
    constraints="alpha >= 0, D >= 1, L >= 0",
    load="1/n",
    delay="0",
    tolerates="no stragglers",
    costs="fewer invocations, but more steps to the same loss",
    avoid=FULL_BATCH,
    source=LAG + ", trigger (8b)",
    example="L = 1, a shard last sent at distance 0.2, RHS = 0.09: 0.04 <= 0.09, it is not asked.",
    sample=Sample(3, {"D": 1, "xi": 1.0}, rounds=4),
    facts=LazyFacts(),
)
G_LAG = SchemeInfo(
    name="g-lag",
    title="lag-ps over groups of workers that hold one shard each; the first answer of a group counts",
    build=build_grouped,
    parameters=(STRAGGLERS, ALPHA, HISTORY, XI, SMOOTHNESS),
    constraints="0 <= s < n, alpha >= 0, D >= 1, L >= 0",
    load="1/(n // (s+1))",
    delay="0",
    tolerates="any s, and every set that spares a member of each group that was asked",
    costs="s + 1 invocations for each shard that is asked",
    avoid=FULL_BATCH,
    source=LAG + "; Zhang, Simeone 2019 (arXiv 1905.09148), grouping",
    example="n = 4, s = 1: shards at {0, 1} and {2, 3}; only the first has drifted: workers 0 and 1 are invoked.",
    sample=Sample(4, {"s": 1, "D": 1, "xi": 1.0}, rounds=3, late={1: (1,), 2: (0,)}),
    facts=GroupedFacts(),
)
LAGC = SchemeInfo(
    name="lagc",
    title="Lazily aggregated gradient coding: groups with an inner code, asked when their shard has drifted",
    build=build_coded,
    parameters=(Parameter("groups", "G", int, None, "shards"), STRAGGLERS, INNER_CODE, ALPHA, HISTORY, XI, SMOOTHNESS),
    constraints="1 <= G <= n, 0 <= s < n // G, alpha >= 0, D >= 1, L >= 0",
    load="(s+1)/n for equal groups (cyclic, dft)",
    delay="0",
    tolerates="any s in each group that was asked",
    costs="one decoded gradient a group is kept as its n_q - s results",
    avoid=FULL_BATCH,
    source="Zhang, Simeone 2019 (arXiv 1905.09148), LAGC, the stateless form",
    example="n = 6, G = 2, s = 1: each group of 3 decodes its shard from any 2 answers, if it was asked.",
    sample=Sample(6, {"G": 2, "s": 1, "D": 1, "xi": 1.0}, rounds=3, late={0: (1,), 2: (0,)}),
    facts=InnerCodeFacts(),
)
INFOS = (LAG_PS, LAG_WK, G_LAG, LAGC)
