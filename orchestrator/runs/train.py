"""Trains a job: prepared, kept, played in a place that its backend has opened, and finished.

    prepared = prepare_job(...)                   # nothing is wrong with the job (`prepare.py`)
    paths = keep_job(prepared, home, folder)      # a folder that the run needs nothing besides (`keep.py`)
    with open_place(config) as place:             # by its backend's name (`orchestrator/backends.py`)
        trained = run_job(prepared, place, paths)

Read next: `assemble.py`, which makes the parts of a life; `play.py` and `orchestrator/loop.py`, which play them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from gradmux.orchestrator.backends import Place, find_backend, open_place
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.errors import GradmuxError, SchemeFault
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.record import EndLine, FileRecord
from gradmux.orchestrator.results import Trained
from gradmux.orchestrator.runs.assemble import Assembly
from gradmux.orchestrator.runs.cleanup import clean_at_once
from gradmux.orchestrator.runs.finish import finish, with_bill
from gradmux.orchestrator.runs.keep import keep_job, nothing_left_of_refused
from gradmux.orchestrator.runs.layout import require_layout
from gradmux.orchestrator.runs.life import Life, living, settle, store_name
from gradmux.orchestrator.runs.log import logging_to
from gradmux.orchestrator.runs.mirror import Mirror, NoMirror
from gradmux.orchestrator.runs.paths import RunPaths, default_home
from gradmux.orchestrator.runs.patience import PatientStore
from gradmux.orchestrator.runs.player import OnStep, Player
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.runs.rows import describe
from gradmux.orchestrator.runs.standing import require_readable
from gradmux.orchestrator.runs.stopping import Stop, stop_on_signals
from gradmux.orchestrator.store import Keys, open_bucket
from gradmux.orchestrator.training.trainer import TorchTrainer

log = logging.getLogger(__name__)

LATE_S = 2.0
"""how long people wait, when they have their results, for calls that are only billed any more"""


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


Watch = Callable[[str, int], AbstractContextManager[OnStep]]
"""(label, gradients) -> something that shows progress while it is open"""


def run_watched(
    prepared: Prepared,
    paths: RunPaths,
    watch: Watch,
    tell: Callable[[str], None],
    epoch: int | None = None,
) -> Trained:
    """A new life of a run at a place that is opened for it, while people look on; signals ask it to end.

    `epoch`: the life's number, if it has one already: then it is detached, and its last bills hold up no user. Raises:
    what ends a run; KeyboardInterrupt at a second Ctrl-C.
    """
    config, stop = prepared.config, Stop()
    with living(paths, epoch) as life, open_place(config, life.epoch) as place:
        tell(f"{paths.run}: {place.describe()}")
        tell(f"data: {describe(prepared.train, prepared.eval)}")
        with watch(config.scheme.name, prepared.plan.jobs) as on_step, stop_on_signals(stop, tell):
            late_s = LATE_S if epoch is None else config.cluster.timeout_s
            return run_life(prepared, place, paths, life, on_step, stop, tell, late_s)


def run_life(
    prepared: Prepared,
    place: Place,
    paths: RunPaths,
    life: Life,
    on_step: OnStep | None = None,
    stop: Stop | None = None,
    tell: Callable[[str], None] = log.warning,
    late_s: float = LATE_S,
) -> Trained:
    """Trains to the end, evaluates, and writes weights and result to the run's folder; then asks for the last bills.

    `stop` is how others ask it to end; `tell` is called with what people should read now; calls that are in flight when
    all is written are waited for up to `late_s`, for nothing but their bill. Raises: what ends a run
    (`gradmux.orchestrator.errors`); the record then says why.
    """
    stop = stop or Stop()
    require_layout(paths)
    require_readable(paths.record)
    settle(paths, life, place.note())
    stop.watch(paths, life.epoch, place.ended)

    store = PatientStore(place.store, patience_s=prepared.config.cluster.patience_s, should_stop=stop.check)
    record = FileRecord(paths.record)
    mirror = _mirror(prepared, place, paths, life, store)
    finished: list[Trained] = []

    def done(trainer: TorchTrainer, rest: EndLine | None) -> None:
        finished.append(finish(prepared, trainer, paths, rest))
        log.info("results are written")

    try:
        with logging_to(paths.log):
            mirror.begin()
            parts = Assembly(prepared, place, paths, life, store)
            try:
                Player(parts, stop, mirror, on_step, tell, done, late_s).train(record)
            except Exception as error:
                if isinstance(error, SchemeFault) or not isinstance(error, GradmuxError):
                    log.info("the run ended by an error", exc_info=True)
                clean_at_once(parts)
                raise
            trained = with_bill(finished[0], paths, prepared.config.cluster.timeout_s)
            mirror.end()
            return trained
    finally:
        record.close()
        store.close()


def _mirror(prepared: Prepared, place: Place, paths: RunPaths, life: Life, store: PatientStore) -> Mirror | NoMirror:
    """Where the backend says so, a run has its folder in the store, too."""
    if not find_backend(prepared.config.cluster.backend).mirrored:
        return NoMirror()
    return Mirror(store, Keys(store_name(paths)), paths, life, place.root)
