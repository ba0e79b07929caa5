"""Trains a job: prepared, kept, played in a place that its backend has opened, and finished.

    prepared = prepare_job(...)                   # nothing is wrong with the job (`prepare.py`)
    paths = keep_job(prepared, home, folder)      # a folder that the run needs nothing besides (`keep.py`)
    with open_place(config) as place:             # by its backend's name (`orchestrator/backends.py`)
        trained = run_job(prepared, place, paths)

Read next: `assemble.py`, which makes the parts of a life; `play.py` and `orchestrator/loop.py`, which play them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gradmux.lambda_worker.contract import cancel_marker, encode_request
from gradmux.orchestrator.auto import AUTO, Choice, Pilot, Watched
from gradmux.orchestrator.backends import Place, find_backend, open_place
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.distances import RecordedDistances
from gradmux.orchestrator.errors import DeadlinePassed, Diverged, GradmuxError, RunStopped, TaskFailed
from gradmux.orchestrator.fleets.beside import CallsBeside
from gradmux.orchestrator.fleets.onward_fleet import OnwardFleet
from gradmux.orchestrator.fleets.shared_fleet import SharedFleet, warm_within
from gradmux.orchestrator.fleets.warming import memory_settled, warm_up
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.ports import StoreClient, Trainer
from gradmux.orchestrator.record import Decoded, EndLine, FileRecord, Recorder, Tee
from gradmux.orchestrator.results import Trained
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.runs.aggregation import Aggregation
from gradmux.orchestrator.runs.assemble import Parts
from gradmux.orchestrator.runs.checkpoints import Checkpoints, Manifest, saved_steps
from gradmux.orchestrator.runs.diverged import Diverging
from gradmux.orchestrator.runs.failed import save_failed
from gradmux.orchestrator.runs.finish import finish
from gradmux.orchestrator.runs.history import ROUNDS, STEPS, require_readable
from gradmux.orchestrator.runs.keep import keep_job, nothing_left_of_refused
from gradmux.orchestrator.runs.keeper import Keeper
from gradmux.orchestrator.runs.leftovers import leftovers
from gradmux.orchestrator.runs.life import Life, living, settle, store_name
from gradmux.orchestrator.runs.log import LoggedRecord, logging_to
from gradmux.orchestrator.runs.mirror import Mirror, NoMirror
from gradmux.orchestrator.runs.paths import RunPaths, default_home
from gradmux.orchestrator.runs.patience import PatientStore
from gradmux.orchestrator.runs.play import play
from gradmux.orchestrator.runs.policy import auto_job
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.runs.slots import Slots, slots_folder
from gradmux.orchestrator.runs.stopping import Stop
from gradmux.orchestrator.runs.workers import Restoring, Workers
from gradmux.orchestrator.schemes.scheme import Key
from gradmux.orchestrator.start import start_after
from gradmux.orchestrator.store import Keys, S3Store, open_bucket
from gradmux.orchestrator.training.distances import DistanceTrainer
from gradmux.orchestrator.training.gradients import CodedResult
from gradmux.orchestrator.training.requests import RequestBuilder
from gradmux.orchestrator.training.trainer import TorchTrainer

log = logging.getLogger(__name__)

POLL_S = 0.5
"""how long the loop waits at most before it looks whether it was asked to stop"""
RECALL_S = 5.0
"""how long a run that ends early tries to tell its workers"""
CLEAN_S = 10.0
"""how long it tries to remove what it has in the store"""
CLIENT_PATIENCE_S = 20.0
"""of the S3 client itself; longer trouble is `PatientStore`'s"""
OnStep = Callable[[Decoded], None]


def run_new(config: JobConfig, materials: Materials, home: Path | None) -> Trained:
    """A job from its description to its models, kept under `home` (None: where the user's runs lie).

    Raises: ConfigError before any worker is invoked, or what ended the run.
    """
    folder = Path.cwd()
    prepared = prepare_job(config, materials, folder, open_bucket)
    paths = keep_job(prepared, home or default_home(), folder)
    with nothing_left_of_refused(paths), open_place(prepared.config) as place:
        return run_job(prepared, place, paths)


def run_job(
    prepared: Prepared, place: Place, paths: RunPaths, on_step: OnStep | None = None, stop: Stop | None = None
) -> Trained:
    """A new life of a run, in a place that is open already: from where the run stands to its end.

    Raises: what ends a run (`gradmux.orchestrator.errors`). RunBusy while another process runs it.
    """
    with living(paths) as life:
        return run_life(prepared, place, paths, life, on_step, stop)


def run_life(
    prepared: Prepared,
    place: Place,
    paths: RunPaths,
    life: Life,
    on_step: OnStep | None = None,
    stop: Stop | None = None,
    tell: Callable[[str], None] = log.warning,
) -> Trained:
    """Trains to the end, evaluates, and writes weights and result to the run's folder.

    `stop` is how others ask it to end; `tell` is called with what people should read now. Raises: what
    ends a run (`gradmux.orchestrator.errors`); the record then says why.
    """
    stop = stop or Stop()
    require_readable(paths.record)
    settle(paths, life, place.note(prepared.config))
    stop.watch(paths, life.epoch, place.ended)

    def connect() -> S3Store:
        return S3Store(place.bucket, endpoint_url=place.s3_url, session=place.session(), patience_s=CLIENT_PATIENCE_S)

    store = PatientStore(connect, patience_s=prepared.config.cluster.patience_s, should_stop=stop.check)
    record = FileRecord(paths.record)
    mirror = _mirror(prepared, place, paths, life, store)
    try:
        with logging_to(paths.log):
            mirror.begin()
            parts = Parts(prepared, place, paths, life, store)
            run = _Run(parts, stop, mirror, on_step, tell)
            try:
                trainer = run.train(record)
            except Exception as error:
                if not isinstance(error, GradmuxError):
                    log.info("the run ended by an error", exc_info=True)
                run.clean_at_once()
                raise
            trained = finish(prepared, trainer, paths)
            mirror.end()
            return trained
    finally:
        record.close()
        store.close()


def _mirror(prepared: Prepared, place: Place, paths: RunPaths, life: Life, store: PatientStore) -> Mirror | NoMirror:
    """A run on AWS has its folder in the bucket, too; the emulator's store ends with the emulator."""
    if not find_backend(prepared.config.cluster.backend).mirrored:
        return NoMirror()
    return Mirror(store, Keys(store_name(paths)), paths, life, place.bucket)


@dataclass(frozen=True, slots=True)
class _Run:
    """One life of a run, played with parts that are made for it."""

    parts: Parts
    """of the whole run, or of what is left of it"""
    stop: Stop
    mirror: Mirror | NoMirror
    on_step: OnStep | None
    tell: Callable[[str], None]

    @property
    def prepared(self) -> Prepared:
        return self.parts.prepared

    def of(self, prepared: Prepared) -> _Run:
        """The same life, with a part of the plan, or under another scheme."""
        return replace(self, parts=replace(self.parts, prepared=prepared))

    def train(self, record: FileRecord) -> TorchTrainer:
        """From the last checkpoint to the last answer that is still billed."""
        checkpoints = Checkpoints(self.parts.paths.checkpoints)
        saved = checkpoints.newest()
        names = tuple(plan.name for plan in self.prepared.models)
        manifest = Manifest(self.parts.paths.run, self.parts.life.epoch, names, saved_steps(saved, names))
        start = start_after(manifest.steps, self.prepared.plan.steps)
        this = self.of(replace(self.prepared, plan=start.plan))
        budget = None if start.finished else this.parts.budget()
        if budget is not None:
            budget.check(0.0, 0)  # a run that has spent it all calls nobody
        trainer = this.parts.trainer(saved)
        trainer.check(self.prepared.train)
        every = self.prepared.config.training.checkpoint_every
        keeper = Keeper(LoggedRecord(record), checkpoints, trainer, manifest, every=every, saved=self.mirror.saved)
        if start.finished:
            keeper.write(this.parts.header(self.prepared.scheme(), manifest.steps))
            keeper.write(EndLine("done", 0.0, "nothing was left to do"))
        elif this.prepared.auto:
            this.play_auto(trainer, keeper, manifest.steps)
        else:
            with this.workers(trainer) as workers:
                keeper.write(this.parts.header(this.prepared.scheme(), manifest.steps))
                this.play(workers, trainer, keeper, keeper, start.already)
        self.clean()
        return trainer

    def play_auto(self, trainer: TorchTrainer, keeper: Keeper, done: tuple[int, ...]) -> None:
        """Segment after segment, each under the scheme that the delays so far speak for."""
        pilot, steps = Pilot(auto_job(self.prepared.config, len(done))), self.prepared.plan.steps

        def tell(choice: Choice) -> None:
            self.tell(f"auto: {choice.describe()}")

        with self.workers(trainer) as workers:
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

        def held(key: Key) -> CodedResult:
            """The loop is put together last."""
            result: CodedResult = loop.result(key)
            return result

        budget = parts.budget()

        def check() -> None:
            self.stop.check()
            if budget is not None:
                summary = loop.summary()
                beside = summary.beside
                budget.check(summary.billed_s + beside.billed_s, summary.invocations + beside.calls)
            if watched is not None and watched.over():
                loop.shorten()

        measuring = DistanceTrainer(trainer, plan, held)
        distances = RecordedDistances(measuring)
        scheme = self.prepared.scheme(distances)
        rounds = self.prepared.rounds(scheme, already, parts.life.epoch)
        requests = parts.requests(trainer, scheme, workers.aggregation.mode)
        workers.requests.serve(requests)
        seen: Trainer = measuring
        if not scheme.reuses_results:
            seen = workers.summing(trainer, parts.setting(scheme), parts.store)
        warm_up(self.prepared.scheme(), trainer, workers.warm, parts.life.epoch)
        loop = Loop(
            scheme=scheme,
            plan=plan,
            rounds=rounds,
            fleet=workers.fleet,
            trainer=seen,
            recorder=recorder,
            asked=distances.take,
            beside=workers.beside.take,
            cpus=lambda: workers.calls.cpus,
            on_step=self.on_step,
            should_stop=check,
            poll_s=POLL_S,
            sums=workers.aggregation.sums,
        )
        steps = None if watched is None else watched.steps
        try:
            play(loop, keeper, drain_s=config.cluster.timeout_s, recall=self.recall, steps=steps)
        except TaskFailed as failure:
            raise self.kept(failure, rounds, requests, Diverging(self.prepared, trainer, parts.paths)) from failure
        except DeadlinePassed as passed:
            raise passed.of(parts.paths.run) from passed
        except Diverged as diverged:
            raise Diverging(self.prepared, trainer, parts.paths).told(diverged) from diverged
        return loop.steps

    @contextmanager
    def workers(self, trainer: TorchTrainer) -> Iterator[Workers]:
        """The fleet of this life, tried, for as long as the context is open."""
        requests, aggregation = Restoring(trainer), Aggregation.of(self.prepared, trainer)
        calls = self.parts.fleet(requests, aggregation.shelf)
        slots = Slots(slots_folder(self.parts.paths, calls.endpoint.url), self.prepared.config.cluster.concurrency)
        fleet = OnwardFleet(SharedFleet(calls, slots))
        try:
            calls.check(connections=self.prepared.scheme().workers)
            with memory_settled():
                warm, beside = warm_within(slots, calls.warm), CallsBeside()
                yield Workers(requests, calls, fleet, beside.counting(warm), beside, aggregation)
        finally:
            fleet.close()
            slots.close()

    def kept(
        self, failure: TaskFailed, rounds: Rounds, requests: RequestBuilder, diverging: Diverging
    ) -> TaskFailed | Diverged:
        """Keeps the request of a task that failed for good; the error, with model and step in it."""
        parts, plan, models = self.parts, self.prepared.plan, self.prepared.models
        tasks = " and ".join(f"model {models[plan.model(job)].name!r}, step {plan.step(job)}" for job in failure.jobs)
        request = requests.build(rounds.last_invocation(failure.round, failure.worker))
        keys = dict.fromkeys(key for task in request.tasks for key in (task.model, task.weights.key) if key)
        name = f"life{parts.life.epoch}-round{failure.round}-worker{failure.worker}"
        hint = f"`gradmux replay-task {parts.paths.run}` runs it here"
        try:
            save_failed(parts.paths, name, encode_request(request), ((key, parts.store.get(key)) for key in keys))
        except (RunStopped, FileNotFoundError) as error:
            hint = f"its request could not be kept: {error}"
        return diverging.found(failure, hint) or failure.named(tasks, hint)

    def recall(self) -> None:
        """Tells the workers of this life not to compute any more, if there are any and the store can be reached."""
        parts = self.parts
        if parts.place.ended():
            return
        marker = cancel_marker(parts.life.epoch)
        if not parts.store.at_once(lambda client: client.put(parts.keys.cancel, marker), RECALL_S):
            log.warning("the workers could not be told to stop: the store does not answer")

    def clean(self) -> None:
        """Removes from the store what only this run needed."""
        keys, store = self.parts.keys, self.parts.store
        try:
            store.delete(leftovers(store, keys))
        except RunStopped as error:
            log.warning("objects under %s stay in the store: %s", keys.prefix, error)

    def clean_at_once(self) -> None:
        """The same when the run ends early: whoever resumes it needs other objects, and perhaps nobody does."""
        keys, until = self.parts.keys, self.parts.life.epoch
        if self.parts.place.ended():
            return

        def remove(client: StoreClient) -> None:
            client.delete(leftovers(client, keys, until))

        if not self.parts.store.at_once(remove, CLEAN_S):
            log.info("objects under %s stay in the store until the run is done", keys.prefix)
