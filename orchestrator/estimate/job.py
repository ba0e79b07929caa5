"""What a job will cost, told before anybody is called: what calls take, from where, and the bill over the simulator.

Knows no command and reaches no network. Read next: `calls.py`, which plays and counts, and `share.py`,
which measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from gradmux.orchestrator.auto import Pilot
from gradmux.orchestrator.backends import Pace, find_backend
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.delays import GENERATORS
from gradmux.orchestrator.delays.calls import CallDelays, How
from gradmux.orchestrator.delays.find import find_profile
from gradmux.orchestrator.errors import RunStopped
from gradmux.orchestrator.estimate.calls import Bill, Calls, Seen, Storing, Work, bill, play
from gradmux.orchestrator.estimate.share import Share, Trial, try_shares
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.prices import Prices
from gradmux.orchestrator.record import Header, Line, MemoryRecord
from gradmux.orchestrator.runs.policy import auto_job
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.runs.rows import describe
from gradmux.orchestrator.start import open_after
from gradmux.orchestrator.training.cloud_sum import slices_of

MOST_CALLS = 30_000
"""So many calls are played, which takes about a second; what is left of a longer run is taken to cost as much."""
MB = 1e6
AT_ONCE_S = 1e-6
"""no deadline is shorter"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job will cost, and on what that rests."""

    bill: Bill
    calls: Calls
    shares: tuple[tuple[str, float], ...]
    """model, what one task of it takes, in seconds"""
    scheme: str
    """what was played; of `auto` what it would choose"""
    assumes: str
    """in one line"""
    memory_mb: int
    prices: Prices
    max_cost_usd: float | None
    lasts: bool
    """does the run last about as long as it was played? Not where an emulator plays delays in another time"""

    @property
    def exceeds_budget(self) -> bool:
        """Would the run stop before its end?"""
        return self.max_cost_usd is not None and self.bill.lambda_usd >= self.max_cost_usd

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        told = self.bill
        return {
            "usd": told.usd,
            "lambda_usd": told.lambda_usd,
            "compute_usd": told.compute_usd,
            "requests_usd": told.requests_usd,
            "s3_usd": told.s3_usd,
            "out_usd": told.out_usd,
            "invocations": round(told.invocations),
            "gb_s": told.gb_s,
            "billed_s": told.billed_s,
            "wall_s": self.calls.wall_s,
            "memory_mb": self.memory_mb,
            "prices": self.prices.date,
            "scheme": self.scheme,
            "shares": [{"model": name, "seconds": seconds} for name, seconds in self.shares],
            "assumes": self.assumes,
            "max_cost_usd": self.max_cost_usd,
            "exceeds_budget": self.exceeds_budget,
        }


def plan_of(prepared: Prepared) -> dict[str, Any]:
    """What would run, for --json."""
    config, scheme = prepared.config, prepared.scheme()
    return {
        "job": config.name,
        "backend": config.cluster.backend,
        "scheme": config.scheme.name,
        "params": dict(prepared.params),
        "workers": scheme.workers,
        "delay": scheme.delay,
        "rounds": scheme.rounds,
        "jobs": scheme.jobs,
        "models": [plan.name for plan in prepared.models],
        "steps": prepared.plan.steps,
        "rows": prepared.train.rows,
        "data": describe(prepared.train, prepared.eval),
        "batch_size": prepared.order.batch_size,
        "chunks": len(scheme.chunk_sizes),
    }


def estimate_job(prepared: Prepared, prices: Prices, named: str | None = None) -> Estimate | str:
    """The estimate; or why there is none, when the run would stop under these delays. `named`: a profile's file or a
    generator's name, instead of what the backend suggests.

    Raises: ConfigError when there are no such delays, or a worker could not compute its share.
    """
    config, cluster = prepared.config, prepared.config.cluster
    backend = find_backend(cluster.backend)
    delays, pace = _named_delays(named, config) if named else backend.delays(config), backend.pace(config)
    try:
        seen = _first_rounds(prepared)
        trial = try_shares(prepared, prepared.scheme(), seen)
        shares = [at_pace(share, pace) for share in trial.shares]
        slope_s = fmean(share.seconds / share.load for share in shares)
        played = _play(prepared, delays, load_model(delays, slope_s))
    except RunStopped as stopped:
        return f"under the delays of {delays.name} the run would stop: {stopped}"
    storing = _storing(prepared, trial, pace, mailed=seen.early or cluster.invoke == "event")
    return Estimate(
        bill=bill(played.calls, _work(shares, slope_s), storing, played.workers, cluster.memory_mb, prices),
        calls=played.calls,
        shares=tuple((plan.name, share.seconds) for plan, share in zip(prepared.models, shares, strict=True)),
        scheme=played.scheme,
        assumes=_assumes(prepared, delays, trial, shares, played, prices),
        memory_mb=cluster.memory_mb,
        prices=prices,
        max_cost_usd=cluster.max_cost_usd,
        lasts=delays.how is not How.LONGER,
    )


# --- what calls take ---------------------------------------------------------------------------------------------


def _named_delays(named: str, config: JobConfig) -> CallDelays:
    """Those of a file were measured with the job's work in them; a generator's come on top of it."""
    profile = find_profile(named, workers=config.cluster.most_workers, seed=config.training.seed)
    failures = profile.failures(config.cluster.timeout_s)
    if named in GENERATORS and not profile.scales:
        return CallDelays(named, How.ADDED, np.maximum(profile.delays_at(0.0), 0.0), failures=failures)
    load, slope_s = profile.reference_load(), profile.slope_s or 0.0
    return CallDelays(named, How.WHOLE, profile.delays_s, slope_s, load, profile.scales, failures)


def delay_table(delays: CallDelays, workers: int, seed: int) -> DelayTable:
    """For so many workers; a profile of fewer has its columns used again."""
    folds = -(-workers // delays.delays_s.shape[1])
    return DelayTable(np.tile(delays.delays_s, (1, folds)), workers, seed, failures=delays.failures.tiled(folds))


def load_model(delays: CallDelays, slope_s: float) -> LoadModel:
    """How a call's time grows with its load, where computing takes `slope_s` for a whole batch."""
    match delays.how:
        case How.WHOLE:
            return LoadModel(delays.slope_s, delays.base_load, scales=delays.scales)
        case How.ADDED:
            return LoadModel(slope_s)
        case How.LONGER:
            return LoadModel(delays.slope_s, delays.base_load, least_slope_s=slope_s, scales=delays.scales)


def _first_rounds(prepared: Prepared) -> Seen:
    """What workers are asked in them."""
    steps = 2 + prepared.scheme().delay // prepared.plan.models
    few = _of_steps(prepared, min(steps, prepared.plan.steps))
    scheme = few.scheme()
    table = DelayTable(np.full((1, scheme.workers), AT_ONCE_S), scheme.workers)
    return play(scheme, few.rounds(scheme), few.plan, table, LoadModel())[1]


def at_pace(share: Share, pace: Pace) -> Share:
    """What was measured here, as it is on a backend."""
    moving_s = share.moved_bytes / pace.moving_bytes_per_s + share.waits * pace.first_byte_s
    return replace(share, seconds=share.seconds * pace.slower + moving_s)


def _work(shares: Sequence[Share], slope_s: float) -> Work:
    return Work(slope_s, fmean(share.puts for share in shares), fmean(share.gets for share in shares))


def _storing(prepared: Prepared, trial: Trial, pace: Pace, *, mailed: bool) -> Storing:
    scheme, concurrency = prepared.scheme(), prepared.config.cluster.concurrency
    item = np.dtype(prepared.wire_dtype(scheme)).itemsize
    size = round(fmean(share.parameters for share in trial.shares)) * item
    slices = slices_of(size, min(scheme.workers, concurrency)) if trial.in_cloud else 0
    return Storing(
        puts_per_job=fmean(share.stored for share in trial.shares),
        fetched=not trial.in_cloud,
        mailed=mailed,
        slices=slices,
        sent_per_task=0.0 if trial.in_cloud else size,
        sent_per_job=size if trial.in_cloud else 0.0,
        slice_s=size / slices / pace.summing_bytes_per_s if slices else 0.0,
        fetch_gets=len(trial.fetches),
        fetch_s=sum(size / pace.moving_bytes_per_s + pace.first_byte_s for size in trial.fetches),
    )


# --- the run in virtual time -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Played:
    """The whole job."""

    calls: Calls
    scheme: str
    workers: int
    """n, the most at any time"""
    jobs: int
    """that were really played"""


def _play(prepared: Prepared, delays: CallDelays, load: LoadModel) -> Played:
    if not prepared.auto:
        calls, jobs, _ = _play_part(prepared, delays, load)
        return Played(calls, prepared.config.scheme.name, prepared.scheme().workers, jobs)
    job = auto_job(prepared.config, prepared.plan.models, prepared.passes, prepared.parameters)
    pilot, steps = Pilot(job), prepared.plan.steps
    total, jobs, workers, done = Calls(), 0, 0, 0
    while done < steps:
        segment = pilot.next_segment((done,) * prepared.plan.models)
        # The first choice is taken to stand: what the run itself measures later is not known yet.
        end = segment.end if pilot.choice is None else steps
        part = prepared.under(segment.choice, JobPlan(prepared.plan.models, end - done))
        calls, played, lines = _play_part(part, delays, load)
        if end < steps:
            pilot.learn(lines)
        total, jobs, done, workers = total + calls, jobs + played, end, max(workers, part.scheme().workers)
    chosen = segment.choice
    told = " ".join(f"{key}={value}" for key, value in chosen.params.items())
    return Played(total, f"{chosen.scheme} {told} on {chosen.workers} workers", workers, jobs)


def _play_part(prepared: Prepared, delays: CallDelays, load: LoadModel) -> tuple[Calls, int, Sequence[Line]]:
    """What it comes to; how many of its jobs were played; the record of those."""
    scheme, plan = prepared.scheme(), prepared.plan
    fewest = 2 + scheme.delay // plan.models
    steps = min(plan.steps, max(fewest, MOST_CALLS // (plan.models * scheme.workers)))
    part, record = _of_steps(prepared, steps), MemoryRecord()
    scheme = part.scheme()
    record.write(Header("estimate", scheme.name, {}, scheme.workers, plan.models, steps, 0, {}, {}))
    table = delay_table(delays, scheme.workers, prepared.config.training.seed)
    calls, _ = play(scheme, part.rounds(scheme), part.plan, table, load, record)
    return calls.times(plan.steps / steps), plan.models * steps, record.lines


def _of_steps(prepared: Prepared, steps: int) -> Prepared:
    """The beginning of the job: so many steps of each model."""
    models = prepared.plan.models
    if prepared.most:
        return replace(prepared, plan=open_after((0,) * models, (steps,) * models, prepared.most))
    return replace(prepared, plan=JobPlan(models, steps))


# --- in words ----------------------------------------------------------------------------------------------------


def _assumes(
    prepared: Prepared, delays: CallDelays, trial: Trial, shares: Sequence[Share], played: Played, prices: Prices
) -> str:
    """What the estimate rests on, in one line."""
    least, most = (1e3 * pick(share.seconds for share in shares) for pick in (min, max))
    share = f"{least:.1f} ms" if len(shares) == 1 or most - least < 0.1 else f"{least:.1f} to {most:.1f} ms"
    takes = {
        How.WHOLE: f"every call takes what {delays.name} says for its load",
        How.ADDED: f"every call takes what its share took here ({share}) and a delay of {delays.name!r} on top",
        How.LONGER: f"every call takes what its share took here ({share})",
    }[delays.how]
    if delays.how is How.LONGER and delays.name != "none":
        takes += f", or the emulator's delay of {delays.name!r} if that is longer"
    failing = float(np.isinf(delays.delays_s).mean())
    faults = f"{failing:.1%} of them fail as the delays say and are repeated" if failing else "no faults"
    told = [f"{takes}, all of it billed", f"no cold starts, {faults}", *_moving(trial)]
    if played.jobs < prepared.plan.jobs:
        told.append(f"{played.jobs:,} of {prepared.plan.jobs:,} gradients played")
    if prepared.auto:
        told.append(f"auto going on as {played.scheme}")
    if prepared.scheme().reuses_results:
        told.append("every result sent anew")
    told.append("the client outside of AWS, no free tier")
    return "; ".join([*told, f"list prices of {prices.date}, x86"])


def _moving(trial: Trial) -> list[str]:
    """What goes through S3, in words."""
    told, most = [], max(trial.shares, key=lambda share: share.moved_bytes)
    if trial.fetches:
        size, requests = sum(trial.fetches) / MB, _requests(len(trial.fetches))
        told.append(f"every worker fetches the rows once ({size:,.1f} MB, {requests})")
    if most.moved_bytes:
        requests = _requests(most.gets + most.puts)
        told.append(
            f"a call moves {most.moved_bytes / MB:,.1f} MB through S3 in {requests}, and waits {most.waits} times"
        )
    return told


def _requests(count: int) -> str:
    return f"{count:,} request" if count == 1 else f"{count:,} requests"
