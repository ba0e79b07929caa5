"""Everything about a job that can be wrong is found here, before any worker is invoked.

Needs no emulator, no account and no network (unless the data lie in S3). Read next: `train.py`, which runs what this
has prepared.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gradmux.lambda_worker.recipe import Group
from gradmux.lambda_worker.schedules import WARMUP_COSINE
from gradmux.orchestrator.auto import AUTO, Choice
from gradmux.orchestrator.backends import KnowsPackages, find_backend
from gradmux.orchestrator.config import JobConfig, ModelConfig, metric_name
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.jobs import JobPlan, OpenPlan, Plan
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.policies import wait_policy
from gradmux.orchestrator.prices import Usage, worth_of
from gradmux.orchestrator.rehearsal import rehearse_plugin
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.runs.policy import limits
from gradmux.orchestrator.runs.rows import OpenBucket, load_rows
from gradmux.orchestrator.schemes import registry
from gradmux.orchestrator.schemes.scheme import Context, Distances, Params, Scheme
from gradmux.orchestrator.schemes.uncoded import INFO as UNCODED
from gradmux.orchestrator.schemes.worth import Worth
from gradmux.orchestrator.start import Start, start_for
from gradmux.orchestrator.store import Keys, MemoryStore
from gradmux.orchestrator.training.code import Code
from gradmux.orchestrator.training.data import Dataset
from gradmux.orchestrator.training.memory import require_memory, rows_mb
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.order import BatchOrder, pass_count
from gradmux.orchestrator.training.plain_descent import full_batch, learning_rates, require_plain_descent
from gradmux.orchestrator.training.requests import wire_dtype
from gradmux.orchestrator.training.trainer import TorchTrainer
from gradmux.orchestrator.training.trial.clean import clean_process
from gradmux.orchestrator.training.trial.kinds import PASS_ROWS, Tried, try_kinds
from gradmux.orchestrator.training.user_files import count_as_own

STATE_FLOATS = 3
"""of each parameter in the state that a stretch sends: the weight, and two moments of Adam"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that nothing is wrong with."""

    config: JobConfig
    params: Params
    """of the scheme, complete"""
    models: tuple[ModelPlan, ...]
    plan: Plan
    train: Dataset
    eval: Dataset | None
    order: BatchOrder
    parameters: int = 0
    """p of a model, on average"""
    most: tuple[int | None, ...] = ()
    """steps that one job of each model may have: 1 where workers cannot make them; empty under other schemes"""

    @property
    def worth(self) -> Worth:
        """What waiting is worth, and what calls cost at the backend's prices: by this schemes are chosen and sized."""
        cluster, training = self.config.cluster, self.config.training
        size = np.dtype("float64" if training.dtype == "float64" else "float32").itemsize * self.parameters
        return worth_of(
            find_backend(cluster.backend).prices,
            cluster.memory_mb,
            cluster.waiting_usd,
            Usage(invocations=1, out_bytes=size),
            Usage(invocations=1, out_bytes=STATE_FLOATS * size),
        )

    def scheme(self, distances: Distances | None = None) -> Scheme:
        """A fresh scheme object: one for each run. `distances` answers what a lazy scheme asks while it runs."""
        return registry.build_scheme(self.scheme_name, self.params, self.context(distances))

    def context(self, distances: Distances | None = None) -> Context:
        """What the scheme is built for."""
        return Context(
            workers=self.config.cluster.most_workers,
            jobs=self.plan.most_jobs,
            models=self.plan.models,
            seed=self.config.training.seed,
            concurrency=self.config.cluster.concurrency,
            samples=self.config.data.batch_size,
            rates=self._rates(),
            distances=distances,
            passes=self.passes,
        )

    @property
    def passes(self) -> int:
        """P, into how many passes every batch is cut: the fewest that any of the models asks for."""
        return min(pass_count(self.order.batch_size, plan.pass_rows) for plan in self.models)

    @property
    def scheme_name(self) -> str:
        """Of the registry."""
        return UNCODED.name if self.auto else self.config.scheme.name

    def _rates(self) -> tuple[float, ...]:
        """Of the models in turn; an open plan has no turns."""
        if isinstance(self.plan, OpenPlan):
            return ()
        return learning_rates([self.models[self.plan.model(job)] for job in range(self.plan.models)])

    @property
    def stepped(self) -> tuple[bool, ...]:
        """Is each model stepped by workers? Empty: none is."""
        return tuple(most != 1 for most in self.most)

    def start(self, done: Sequence[int]) -> Start:
        """What is left of the job after so many steps of each model."""
        name = UNCODED.name if self.auto else self.config.scheme.name
        return start_for(registry.get(name), done, self.config.training.steps, self.most)

    @property
    def auto(self) -> bool:
        """Is the scheme still to be chosen? Until then the job is an uncoded one."""
        return self.config.scheme.name == AUTO

    def under(self, choice: Choice, plan: Plan) -> Prepared:
        """The part `plan` of the job under the scheme that was chosen for it."""
        scheme = self.config.scheme.model_copy(update={"name": choice.scheme, "max_load": None})
        cluster = self.config.cluster.model_copy(update={"workers": choice.workers})
        params = registry.parse_params(registry.get(choice.scheme), choice.params)
        config = self.config.model_copy(update={"scheme": scheme, "cluster": cluster})
        return replace(self, config=config, params=params, plan=plan)

    def wire_dtype(self, scheme: Scheme) -> str:
        """The type in which gradients travel. Raises: ConfigError when the scheme's code is too noisy for float16."""
        training = self.config.training
        return wire_dtype([training.dtype], binary=scheme.binary, half=training.results == "float16")

    def rounds(self, scheme: Scheme, already: Set[int] = frozenset(), epoch: int = 0) -> Rounds:
        """The fresh state of one life of a run of `scheme`."""
        policy, bounds = wait_policy(self.config.scheme.closing), limits(self.config)
        return Rounds(scheme, self.plan, policy, bounds, already=already, epoch=epoch)


def prepare_job(
    config: JobConfig, materials: Materials, folder: Path, open_bucket: OpenBucket, *, again: bool = False
) -> Prepared:
    """Loads the data, builds every model once and lets the scheme check its parameters.

    `again`: the code was shown to run without the user's files before, when the job was submitted. Modules and
    relative paths are looked for in `folder` first. Raises: ConfigError in one line.
    """
    if not again:
        clean_process()  # it gets warm while data are read
    params = _params(config)
    config = find_backend(config.cluster.backend).prepare(config, folder)
    plans = model_plans(config, materials)
    import_from(folder)
    train, judged = load_rows(config, materials, folder, open_bucket)
    prepared = Prepared(
        config=config,
        params=params,
        models=plans,
        plan=JobPlan(models=len(plans), steps=config.training.steps),
        train=train,
        eval=judged,
        order=BatchOrder(train.rows, config.data.batch_size, config.training.seed, sampling=train.sampling),
    )
    rehearse_plugin(prepared.scheme_name, params, prepared.context())
    scheme = prepared.scheme()  # before any model is built: what is wrong with it is told at once
    if scheme.reuses_results:
        prepared = _checked_for_lazy(prepared)
    prepared.wire_dtype(scheme)
    prepared.rounds(scheme)
    passes = prepared.passes
    prepared = _try_models(prepared, clean=not again)
    if prepared.passes != passes:  # some need fixed ones
        scheme = prepared.scheme()
        prepared.rounds(scheme)
    _require_rows_to_estimate_from(prepared, scheme)
    return prepared


def _require_rows_to_estimate_from(prepared: Prepared, scheme: Scheme) -> None:
    """Refuses estimates of so few rows that the results they are made from may hold none; tells who has none."""
    name, batch_size = prepared.config.scheme.name, prepared.order.batch_size
    parts, empty = len(scheme.chunk_sizes), int((scheme.chunk_sizes == 0).sum())
    if not empty:
        return
    if prepared.config.scheme.approximate or not scheme.exact:
        raise ConfigError(
            f"{name} estimates gradients from {parts} chunks of a batch, but {empty} have no rows with "
            f"data.batch_size = {batch_size} in {_counted(prepared.passes, 'pass', 'passes')}: use larger batches, "
            "fewer workers, smaller passes (training.pass_rows), or exact decodes"
        )
    if prepared.passes < batch_size and not prepared.auto:
        rows = -(-batch_size // prepared.passes)
        log.warning(
            "%s of up to %d rows make a batch, but %s cuts it into %d parts: %d of them are empty, and workers that "
            "have no other compute nothing; use fewer workers, larger batches (data.batch_size) or smaller passes "
            "(training.pass_rows)",
            _counted(prepared.passes, "pass", "passes"),
            rows,
            name,
            parts,
            empty,
        )


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _checked_for_lazy(prepared: Prepared) -> Prepared:
    """The job with its batches in file order, if it is one that a lazy scheme can serve."""
    name, alpha = prepared.config.scheme.name, float(prepared.params.get("alpha", 0.0))
    if prepared.config.data.sampling is not None or prepared.config.data.transform is not None:
        raise ConfigError(f"{name} needs the same rows in every step: leave out data.sampling and data.transform")
    if prepared.config.cluster.aggregate == "cloud":
        raise ConfigError(f'{name} keeps gradients to compare them, so it needs cluster.aggregate = "client"')
    require_plain_descent(name, prepared.models, alpha)
    return replace(prepared, order=full_batch(name, prepared.order))


def _params(config: JobConfig) -> Params:
    """The scheme's, complete. Raises: ConfigError, also for what does not go with `auto`."""
    scheme = config.scheme
    if scheme.name != AUTO:
        if config.cluster.workers == "auto":
            raise ConfigError('cluster.workers = "auto" needs scheme.name = "auto"; give a number')
        return registry.parse_params(registry.get(scheme.name), scheme.parameters)
    if scheme.parameters:
        raise ConfigError(f"auto chooses all parameters itself: leave out {', '.join(scheme.parameters)}")
    if scheme.closing.wait != "earliest":
        raise ConfigError("auto closes rounds as early as it may: leave out wait, or name a scheme")
    return {}


def model_plans(config: JobConfig, materials: Materials) -> tuple[ModelPlan, ...]:
    """The job's models, with the functions of `materials` where those are given. Nothing is imported."""
    return tuple(_model_plan(model, config, materials) for model in config.expanded_models())


def _scheduler(model: ModelConfig, config: JobConfig, materials: Materials) -> tuple[Code | None, dict[str, Any]]:
    """The scheduler and its arguments; one with functions of the user's is complete."""
    if model.name in materials.schedulers:
        return materials.schedulers[model.name], {}
    if model.scheduler is None:
        return None, {}
    steps = {"total_steps": config.training.steps} if model.scheduler.name == WARMUP_COSINE else {}
    return model.scheduler.name, {**steps, **model.scheduler.arguments}


def _model_plan(model: ModelConfig, config: JobConfig, materials: Materials) -> ModelPlan:
    scheduler, arguments = _scheduler(model, config, materials)
    return ModelPlan(
        name=model.name,
        factory=materials.factories.get(model.name, model.factory),
        args=model.args,
        optimizer=materials.optimizers.get(model.name, model.optimizer.name),
        optimizer_args=model.optimizer.arguments,
        groups=tuple(Group(each.names, each.layers, each.arguments) for each in model.optimizer.groups),
        scheduler=scheduler,
        scheduler_args=arguments,
        clip_norm=config.training.clip_norm,
        clip_value=config.training.clip_value,
        ema=model.ema,
        loss=materials.loss or config.training.loss,
        metrics=_metrics(config, materials),
        dtype=config.training.dtype,
        seed=config.training.seed,
        pass_rows=None if config.training.pass_rows is None else _pass_rows(config),
        norms=config.training.norms,
    )


def _metrics(config: JobConfig, materials: Materials) -> tuple[tuple[str, Code], ...]:
    """By name: the user's own function, or what the job calls it."""
    names = {metric_name(each): each for each in config.training.metrics}
    return tuple((name, materials.metrics.get(name, each)) for name, each in names.items())


def _pass_rows(config: JobConfig) -> int:
    """Of the passes of a model that needs fixed ones."""
    asked, batch_size = config.training.pass_rows or PASS_ROWS, config.data.batch_size
    return batch_size if asked == "batch" else min(asked, batch_size)


def import_from(folder: Path) -> None:
    """From now on modules in `folder` can be imported."""
    place = str(folder.resolve())
    count_as_own(folder)
    if place not in sys.path:
        sys.path.insert(0, place)


def _try_models(prepared: Prepared, *, clean: bool) -> Prepared:
    """Builds each model, tries it on a few rows and packs it for workers: the job with the passes that each needs."""
    rows = _pass_rows(prepared.config)
    plans = [replace(plan, pass_rows=rows) for plan in prepared.models]
    trial = TorchTrainer(plans, prepared.plan, store=MemoryStore(), keys=Keys("trial"))
    trial.check(prepared.train, prepared.eval)
    if prepared.scheme().reuses_results:
        trial.require_steady_counts(prepared.config.scheme.name)
    trial.put_specs()
    memory_mb = prepared.config.cluster.memory_mb
    taken_mb = _require_memory(prepared, trial)
    free = prepared.config.training.pass_rows is None
    backend = find_backend(prepared.config.cluster.backend)
    packages = partial(backend.packages, prepared.config) if isinstance(backend, KnowsPackages) else None
    plans, tried = try_kinds(
        plans,
        trial.model,
        prepared.train,
        free=free,
        clean=clean,
        packages=packages,
        memory_mb=memory_mb,
        rows_mb=taken_mb,
    )
    _require_steady(prepared, tried)
    trial.rehearse(prepared.plan.steps)
    size = round(sum(map(trial.size, range(prepared.plan.models))) / prepared.plan.models)
    return replace(prepared, models=tuple(plans), parameters=size, most=_most_steps(prepared, trial))


def _require_memory(prepared: Prepared, trial: TorchTrainer) -> float:
    """MB that the rows of a task take. Warns, or raises ConfigError, where a worker cannot hold model and rows."""
    cluster, scheme = prepared.config.cluster, prepared.scheme()
    tasks = [task for slots in scheme.assign(0).values() for task in slots if task is not None]
    load = max((task.load(scheme.chunk_sizes) for task in tasks), default=0.0)
    task_rows = round(min(1.0, load) * prepared.order.batch_size)
    rows = rows_mb(prepared.train, task_rows, np.dtype(prepared.config.training.dtype).itemsize)
    modules = (trial.module(index) for index in range(prepared.plan.models))
    require_memory(modules, cluster.memory_mb, rows, find_backend(cluster.backend).limits.memory_mb)
    return rows


def _require_steady(prepared: Prepared, tried: Sequence[Tried]) -> None:
    """Raises ConfigError when a lazy scheme, which uses old gradients again, would compare what cannot be compared."""
    if not prepared.scheme().reuses_results:
        return
    for plan, each in zip(prepared.models, tried, strict=True):
        what = each.outcome.unsteady
        if what:
            raise ConfigError(
                f"{prepared.config.scheme.name} uses old gradients again, but the forward of model {plan.name!r} "
                f"{what}: use another scheme, or leave that out of the model"
            )


def _most_steps(prepared: Prepared, trial: TorchTrainer) -> tuple[int | None, ...]:
    """1 for each model whose steps workers cannot make, or all if stretches have one step; says so once."""
    if prepared.auto or not registry.get(prepared.config.scheme.name).stretches:
        return ()
    if prepared.config.cluster.aggregate == "cloud":
        raise ConfigError("stretch brings back models, which nothing has to sum: leave out cluster.aggregate")
    if prepared.params["steps"] == 1:
        return (1,) * len(prepared.models)
    reasons = [trial.untaught(model) for model in range(len(prepared.models))]
    unable = [plan.name for plan, reason in zip(prepared.models, reasons, strict=True) if reason]
    if unable:
        reason = next(filter(None, reasons))
        log.warning("workers cannot make the steps of %s, so each is a call (K = 1): %s", ", ".join(unable), reason)
    return tuple(1 if reason else None for reason in reasons)
