"""Plays one life of a run with the parts that are made for it: as one loop, or segment after segment under `auto`.

The only place that puts scheme, rounds, requests, trainer, fleet and loop together. Read next: `orchestrator/loop.py`;
`play.py`, which plays a loop to its end, whatever that is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gradmux.orchestrator.auto import AUTO, Choice, Pilot, Watched
from gradmux.orchestrator.distances import RecordedDistances
from gradmux.orchestrator.errors import DeadlinePassed, Diverged, RowsInteract, TaskFailed
from gradmux.orchestrator.fleets.warming import warm_up
from gradmux.orchestrator.held import Held
from gradmux.orchestrator.jobs import OpenPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.ports import Trainer
from gradmux.orchestrator.record import Decoded, EndLine, FileRecord, Recorder, Tee
from gradmux.orchestrator.runs.assemble import Assembly
from gradmux.orchestrator.runs.budget import Budget
from gradmux.orchestrator.runs.checkpoints import Checkpoints, Manifest, saved_steps
from gradmux.orchestrator.runs.cleanup import clean, recall
from gradmux.orchestrator.runs.diverged import Diverging
from gradmux.orchestrator.runs.history import ROUNDS, STEPS, read_history
from gradmux.orchestrator.runs.keep import fix_passes
from gradmux.orchestrator.runs.keeper import Keeper
from gradmux.orchestrator.runs.log import LoggedRecord
from gradmux.orchestrator.runs.mirror import Mirror, NoMirror
from gradmux.orchestrator.runs.patience import PatientStore
from gradmux.orchestrator.runs.play import play
from gradmux.orchestrator.runs.policy import auto_job
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.runs.standing import unrecorded
from gradmux.orchestrator.runs.stopping import Stop
from gradmux.orchestrator.runs.task_failure import explained
from gradmux.orchestrator.runs.workers import Workers, open_workers
from gradmux.orchestrator.start import start_after
from gradmux.orchestrator.training.distances import DistanceTrainer
from gradmux.orchestrator.training.trainer import TorchTrainer
from gradmux.orchestrator.training.trial.kinds import PASS_ROWS

POLL_S = 0.5
"""how long the loop waits at most before it looks whether it was asked to stop"""
OnStep = Callable[[Decoded], None]


class Checks:
    """What a loop asks between events: is it to end, has it cost too much, is its segment over?"""

    def __init__(self, stop: Stop, budget: Budget | None, watched: Watched | None, store: PatientStore) -> None:
        self._stop, self._budget, self._watched, self._store = stop, budget, watched, store
        self._loop: Loop | None = None

    def begin(self, loop: Loop) -> None:
        """This loop's sums count, and it is ended early when its segment is over."""
        self._loop = loop

    def check(self) -> None:
        """Raises what ends the run early."""
        self._stop.check()
        self._store.check()
        if self._loop is None:
            return
        if self._budget is not None:
            summary = self._loop.summary()
            beside = summary.beside
            self._budget.check(summary.billed_s + beside.billed_s, summary.invocations + beside.calls)
        if self._watched is not None and self._watched.over():
            self._loop.shorten()


@dataclass(frozen=True, slots=True)
class Player:
    """One life of a run, played with parts that are made for it."""

    parts: Assembly
    """of the whole run, or of what is left of it"""
    stop: Stop
    mirror: Mirror | NoMirror
    on_step: OnStep | None
    tell: Callable[[str], None]
    done: Callable[[TorchTrainer, EndLine | None], None] = lambda trainer, rest: None
    """called as soon as the models are, with what the record does not hold yet; then their last bills are waited for"""
    late_s: float = 0.0
    """how long, at most"""

    @property
    def prepared(self) -> Prepared:
        return self.parts.prepared

    def of(self, prepared: Prepared) -> Player:
        """The same life, with a part of the plan, or under another scheme."""
        return replace(self, parts=replace(self.parts, prepared=prepared))

    def train(self, record: FileRecord) -> TorchTrainer:
        """From the last checkpoint to the last answer that is still billed."""
        checkpoints = Checkpoints(self.parts.paths.checkpoints)
        run = self.parts.keys.run
        saved = checkpoints.newest(run)
        names = tuple(plan.name for plan in self.prepared.models)
        done = saved_steps(None if saved is None else saved.manifest, names)
        manifest = Manifest(self.parts.paths.run, self.parts.life.epoch, names, done, of=run)
        start = self.prepared.start(manifest.steps)
        lost = unrecorded(read_history(self.parts.paths.record), done)
        whole = replace(self.parts, unrecorded=lost)
        this = replace(self, parts=replace(whole, prepared=replace(self.prepared, plan=start.plan)))
        budget = None if start.finished else this.parts.budget()
        if budget is not None:
            budget.check(0.0, 0)  # a run that has spent it all invokes nothing
        trainer = this.parts.trainer(saved)
        trainer.check(self.prepared.train)
        every = self.prepared.config.training.checkpoint_every
        keeper = Keeper(
            LoggedRecord(record),
            checkpoints,
            trainer,
            manifest,
            every=every,
            saved=self.mirror.saved,
            check=partial(self.require_free, trainer),
        )
        if start.finished:
            keeper.write(this.parts.header(self.prepared.scheme(), manifest.steps))
            keeper.write(EndLine("done", 0.0, "nothing was left to do"))
            self.done(trainer, None)
        elif this.prepared.auto:
            this.play_auto(trainer, keeper, manifest.steps)
        else:
            with open_workers(this.parts, trainer) as workers:
                keeper.write(this.parts.header(this.prepared.scheme(), manifest.steps))
                this.play(workers, trainer, keeper, keeper, start.already)
        clean(self.parts)
        return trainer

    def require_free(self, trainer: TorchTrainer) -> None:
        """Raises RowsInteract when passes that are free must be fixed, as they are when the run goes on."""
        found = trainer.interacting(self.prepared.train)
        if found is None:
            return
        (plan, where), rows, paths = found, min(PASS_ROWS, self.prepared.order.batch_size), self.parts.paths
        fix_passes(paths, rows)
        raise RowsInteract(plan.name, min(map(trainer.steps, range(len(self.prepared.models)))), where, rows, paths.run)

    def play_auto(self, trainer: TorchTrainer, keeper: Keeper, done: tuple[int, ...]) -> None:
        """Segment after segment, each under the scheme that the delays so far speak for."""
        job = auto_job(self.prepared.config, len(done), self.prepared.passes, self.prepared.parameters)
        pilot, steps = Pilot(job), self.prepared.plan.steps

        def tell(choice: Choice) -> None:
            self.tell(f"auto: {choice.describe()}")

        with open_workers(self.parts, trainer) as workers:
            while min(done) < steps:
                segment = pilot.next_segment(done)
                start = start_after(done, segment.end)
                trainer.begin(start.plan)
                workers.fleet.begin_segment()
                this = self.of(self.prepared.under(segment.choice, start.plan))
                told = {AUTO: segment.choice.to_dict(), STEPS: steps, ROUNDS: workers.fleet.first}
                recorder = Tee(keeper)
                recorder.write(this.parts.header(this.prepared.scheme(), done, told))
                watched = Watched(pilot, segment, recorder, tell, steps)
                done = (this.play(workers, trainer, keeper, recorder, start.already, watched),) * len(done)
                choice = pilot.learn(recorder.lines) if min(done) < steps else None
                if choice is not None:
                    tell(choice)

    def play(
        self,
        workers: Workers,
        trainer: TorchTrainer,
        keeper: Keeper,
        recorder: Recorder,
        already: frozenset[int],
        watched: Watched | None = None,
    ) -> int:
        """Scheme, requests and loop of this life, or of a segment of it, played to its end; the steps that are done.

        A segment that is `watched` may end early. Unless it is the last one, all that is in flight is waited for.
        """
        parts, plan, config = self.parts, self.prepared.plan, self.prepared.config
        checks = Checks(self.stop, parts.budget(), watched, parts.store)
        held = Held(workers.aggregation.sums)
        measuring = DistanceTrainer(trainer, plan, held)
        distances = RecordedDistances(measuring)
        scheme = self.prepared.scheme(distances)
        rounds = self.prepared.rounds(scheme, already, parts.life.epoch)
        requests = parts.requests(trainer, scheme, workers.aggregation.mode)
        workers.requests.serve(requests)
        seen: Trainer = measuring
        if not scheme.reuses_results:
            seen = workers.summing(trainer, parts.setting(scheme), parts.store)
        if not isinstance(plan, OpenPlan):  # what its first jobs are is known when they begin
            warm_up(self.prepared.scheme(), trainer, workers.warm, parts.life.epoch)
        loop = Loop(
            plan=plan,
            rounds=rounds,
            fleet=workers.fleet,
            trainer=seen,
            recorder=recorder,
            asked=distances.take,
            beside=workers.beside.take,
            cpus=lambda: workers.calls.cpus,
            on_step=self.on_step,
            should_stop=checks.check,
            poll_s=POLL_S,
            held=held,
        )
        checks.begin(loop)
        steps = None if watched is None else watched.steps
        try:
            play(
                loop,
                keeper,
                drain_s=config.cluster.timeout_s,
                recall=partial(recall, parts),
                steps=steps,
                done=partial(self.done, trainer),
                late_s=min(self.late_s, config.cluster.timeout_s),
            )
        except TaskFailed as failure:
            diverging = Diverging(self.prepared, trainer, parts.paths)
            raise explained(failure, parts, rounds, requests, diverging) from failure
        except DeadlinePassed as passed:
            raise passed.of(parts.paths.run) from passed
        except Diverged as diverged:
            raise Diverging(self.prepared, trainer, parts.paths).told(diverged) from diverged
        return loop.steps
