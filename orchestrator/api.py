"""The Python door: describe a job with your own functions and arrays, train it, get the modules back.

    result = train(Job(models=[Model("mlp", factory=make_mlp)], data=(x, y), batch_size=1024, steps=100))
    result["mlp"].state_dict()

Works from a script and a notebook, with functions defined in it: they travel by cloudpickle. Read next:
`config.py`, which a `Job` becomes, and `runs/train.py`, which trains it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gradmux.orchestrator.config import JobConfig, metric_name
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.materials import Factory, Materials
from gradmux.orchestrator.results import Trained

if TYPE_CHECKING:
    from gradmux.orchestrator.reference import Reference

__all__ = ["Job", "Materials", "Model", "Trained", "train", "train_reference"]

Maker: TypeAlias = "str | Callable[..., Any]"
"""A class by name, or a class or function of your own."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model to train."""

    name: str
    factory: Factory | str
    """a function that returns the nn.Module, or "module:function" """
    args: Mapping[str, Any] = field(default_factory=dict)
    """its keyword arguments: JSON values"""
    optimizer: Maker | tuple[Maker, Mapping[str, Any]] = "SGD"
    """a class of torch.optim by name, with its arguments: ("Adam", {"lr": 1e-3}); or a class or function of your own,
    called with the parameters, or with the model if its first argument is called `model`; `groups` as in a job file"""
    scheduler: Maker | tuple[Maker, Mapping[str, Any]] | None = None
    """a class of torch.optim.lr_scheduler in the same way, WarmupCosine, or your own, called with the optimizer; it is
    stepped after every step of the optimizer; functions may be among the arguments"""
    ema: float | None = None
    """decay of a moving average of the weights, for each step"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Several models on one data set, side by side; the fields are those of a job file."""

    models: Sequence[Model]
    data: Any
    """(x, y) or (x, y, weights) of arrays or tensors, x and y also tuples or dicts of them; a torch Dataset, a
    DataFrame, a Hugging Face data set; or what `data.train` of a job file may name: docs/data.md"""
    batch_size: int
    """rows of one step, over all workers"""
    steps: int
    """per model"""
    eval_data: Any = None
    loss: Callable[..., Any] | str = "cross_entropy"
    metrics: Sequence[Callable[..., Any] | str] = ()
    """figures beside the loss: names as in a job file, or functions as a loss may be"""
    seed: int = 0
    dtype: Literal["float32", "float64"] = "float32"
    """of parameters and gradients"""
    clip_norm: float | None = None
    """largest norm of a gradient, as torch's clip_grad_norm_"""
    clip_value: float | None = None
    """largest absolute value of its elements, as torch's clip_grad_value_"""
    pass_rows: int | Literal["batch"] | None = None
    """rows of one forward and backward at most, whichever worker computes it; "batch": all; None: 32 for models of
    which the trial shows that it matters, and for others as many as a worker has"""
    norms: Literal["batch", "running"] = "batch"
    """how batch normalisation normalises: each pass by its own statistics, or by running statistics"""
    checkpoint_every: int = 20
    """steps of one model between checkpoints; 0: only at the end"""
    name: str = "job"
    workers: int | Literal["auto"] = 64
    """n; "auto" with the scheme "auto": up to 64, as many as pay"""
    scheme: str = "uncoded"
    stragglers: int | None = None
    """s"""
    burst: int | None = None
    """B"""
    window: int | None = None
    """W"""
    max_stragglers: int | None = None
    """lambda"""
    responses: int | None = None
    """r"""
    code: str | None = None
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)
    """any other parameter of the scheme, and options like `in_flight_cap` and `harvest_late`"""
    wait: Literal["earliest", "mu"] = "earliest"
    mu: float | None = None
    deadline_s: float | None = None
    approximate: bool = False
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """other keys of the section [cluster]"""
    emulator: Mapping[str, Any] = field(default_factory=dict)
    """the section [emulator]: delays and faults of the local backend"""
    rows: Mapping[str, Any] = field(default_factory=dict)
    """other keys of the section [data]: validation, scale, mean, std, inputs, targets, ..."""
    transform: Callable[..., Any] | str | None = None
    """of the inputs of one row that workers train on: random numbers are seeded by epoch and row"""
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """those of other backends, by name"""

    def config(self) -> JobConfig:
        """The same job as a job file would give it. Raises: ConfigError, one line per mistake."""
        tree = {
            "name": self.name,
            "cluster": {"workers": self.workers, **self.cluster},
            "scheme": self._scheme(),
            "data": self._data(),
            "training": self._training(),
            "models": [_model(model) for model in self.models],
            **_present(emulator=dict(self.emulator) or None),
            **{name: dict(section) for name, section in self.sections.items()},
        }
        return parse_job(tree, source="Job")

    def materials(self) -> Materials:
        """What a job file cannot hold."""
        return Materials(
            factories={m.name: m.factory for m in self.models if not isinstance(m.factory, str)},
            optimizers={m.name: own for m in self.models if (own := _own_optimizer(m)) is not None},
            schedulers={m.name: own for m in self.models if (own := _own_scheduler(m)) is not None},
            loss=None if isinstance(self.loss, str) else self.loss,
            metrics={metric_name(_code_name(m, "metric")): m for m in self.metrics if not isinstance(m, str)},
            transform=None if isinstance(self.transform, str) else self.transform,
            train=None if isinstance(self.data, str | Path) else self.data,
            eval=None if isinstance(self.eval_data, str | Path) else self.eval_data,
        )

    def _data(self) -> dict[str, Any]:
        transform = None if self.transform is None else _code_name(self.transform, "transform")
        named = _present(train=_named(self.data), eval=_named(self.eval_data), transform=transform)
        return {**self.rows, **named, "batch_size": self.batch_size}

    def _training(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _TRAINING_FIELDS}
        metrics = [_code_name(each, "metric") for each in self.metrics]
        return {**_present(**own), "loss": _code_name(self.loss, "loss"), "metrics": metrics}

    def _scheme(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _SCHEME_FIELDS}
        return {**self.parameters, **_present(**own), "name": self.scheme, "approximate": self.approximate}


_TRAINING_FIELDS = ("steps", "seed", "dtype", "clip_norm", "clip_value", "pass_rows", "norms", "checkpoint_every")
_SCHEME_FIELDS = ("stragglers", "burst", "window", "max_stragglers", "responses", "code", "wait", "mu", "deadline_s")


def train(job: Job, *, backend: str | None = None, home: str | Path | None = None) -> Trained:
    """Trains every model of `job` and returns them. Record and weights are kept under `home` (else the user's folder).

    `backend`: the name of an installed one; None: what `job.cluster` says, else "local".
    Raises: ConfigError before any worker is invoked, or what ended the run (`gradmux.orchestrator.errors`).
    """
    if backend is not None:
        job = replace(job, cluster={**job.cluster, "backend": backend})
    config = job.config()
    from gradmux.orchestrator.runs.train import run_new  # imports torch: a mistake in the job is told before

    return run_new(config, job.materials(), None if home is None else Path(home))


def train_reference(job: Job, steps: int | None = None) -> Reference:
    """Trains every model of `job` by an ordinary torch loop in this process, for so many steps (None: all of them).

    It shares no code with what trains through workers, so that the two can be compared: modules by name, and `losses`.
    Raises: ConfigError for a job that `train` would refuse.
    """
    from gradmux.orchestrator.reference import Reference
    from gradmux.orchestrator.runs.prepare import prepare_job
    from gradmux.orchestrator.store import open_bucket

    return Reference.of(prepare_job(job.config(), job.materials(), Path.cwd(), open_bucket), steps)


def _present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _named(data: object) -> str | None:
    return None if data is None else str(data) if isinstance(data, str | Path) else "arrays"


def _model(model: Model) -> dict[str, Any]:
    described = {
        "name": model.name,
        "factory": _code_name(model.factory, "factory"),
        "args": dict(model.args),
        "optimizer": _named_class(model.optimizer, "optimizer"),
        **_present(ema=model.ema),
    }
    if model.scheduler is None:
        return described
    return {**described, "scheduler": _named_class(model.scheduler, "scheduler")}


def _own_optimizer(model: Model) -> Callable[..., Any] | None:
    maker, _ = _with_arguments(model.optimizer)
    return None if isinstance(maker, str) else maker


def _own_scheduler(model: Model) -> Callable[..., Any] | None:
    """The scheduler with its arguments, when there is a function among all that: it takes the optimizer alone."""
    if model.scheduler is None:
        return None
    maker, arguments = _with_arguments(model.scheduler)
    if isinstance(maker, str) and not _has_function(arguments):
        return None
    from gradmux.lambda_worker.schedules import make_scheduler

    return partial(make_scheduler, maker, arguments)


def _with_arguments(given: Maker | tuple[Maker, Mapping[str, Any]]) -> tuple[Maker, Mapping[str, Any]]:
    """The class or function, and its arguments; torch's own classes by name."""
    maker, arguments = given if isinstance(given, tuple) else (given, {})
    if not isinstance(maker, str) and (getattr(maker, "__module__", None) or "").startswith("torch.optim"):
        maker = maker.__name__
    return maker, arguments


def _has_function(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_function(inner) for inner in value.values())
    return any(map(_has_function, value)) if isinstance(value, list | tuple) else callable(value)


def _named_class(given: Maker | tuple[Maker, Mapping[str, Any]], role: str) -> dict[str, Any]:
    maker, arguments = _with_arguments(given)
    if role == "optimizer" and _has_function(arguments):
        raise ConfigError("Job: a function among the arguments of an optimizer: bind it by functools.partial")
    return {**_described(arguments), "name": _code_name(maker, role)}


def _described(value: Any) -> Any:
    """The same as JSON has it: functions by name."""
    if isinstance(value, Mapping):
        return {key: _described(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_described(inner) for inner in value]
    return _code_name(value, "function") if callable(value) else value


def _code_name(code: Callable[..., Any] | str, role: str) -> str:
    """A function's name for the record: "module:function", whatever it is called."""
    if isinstance(code, str):
        return code
    name = getattr(code, "__qualname__", type(code).__qualname__)
    return f"{getattr(code, '__module__', role)}:{re.sub(r'[^A-Za-z0-9_.]', '', name) or role}"


assert {*_SCHEME_FIELDS, *_TRAINING_FIELDS} <= {each.name for each in fields(Job)}
