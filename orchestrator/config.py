"""What a job is, as the user writes it: validated once, frozen, and described by the JSON Schema of the same classes.

The text under a key is what that schema and docs/job-file.md say of it.

Knows only shapes and ranges: not which schemes and backends exist (`schemes/registry.py`, `backends.py`), nor how a job
file is read and how its mistakes are told. Read next: `job_file.py`.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from gradmux.orchestrator.closing import Closing, ClosingKey, keys
from gradmux.orchestrator.errors import ConfigError

Scalar: TypeAlias = bool | int | float | str
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=+-]*$", max_length=120)]
"""Names files and S3 keys too, hence only letters, digits and . _ = + -"""
RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Share = Annotated[float, Field(ge=0, le=1)]
AUTO_WORKERS = 64
"""n at most with workers = "auto": more pay for large models only"""


class Section(BaseModel):
    """One table of a job file: strict types, no unknown keys, never changed after."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


AnySection = TypeVar("AnySection", bound=Section)


class ClusterConfig(Section):
    """Where workers run and how many at once."""

    backend: Annotated[str, Field(min_length=1)] = "local"
    """where workers run: "local", processes of the emulator on this machine; "aws", functions on AWS Lambda; or another
    backend that is installed"""
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = 64
    """n, logical workers; "auto", with scheme.name = "auto": as many as pay, up to 64"""
    concurrency: Annotated[int, Field(ge=1)] = 1000
    """C, invocations in flight at any instant, at most; 1000 is what AWS grants an account at first"""
    attempts: Annotated[int, Field(ge=1)] = 3
    """tries per worker and round, failures and backups together"""
    memory_mb: Annotated[int, Field(ge=128)] = 2048
    """MB that a worker has, and a thread for each 1,769 of them; on AWS and the emulator at most 10,240: the emulator
    ends one that takes more; what a function on AWS has is said when it is deployed, and a difference is warned of"""
    timeout_s: Annotated[float, Field(ge=1)] = 60
    """seconds that an invocation may take, on AWS and the emulator at most 900: the emulator ends it then; on AWS give
    the function's own timeout, since a call that is silent for longer is given up"""
    invoke: Literal["request", "event"] = "request"
    """how workers answer: on the connection that asked, or, for rounds that outlast idle connections, through S3"""
    aggregate: Literal["auto", "client", "cloud"] = "auto"
    """where gradients are summed: by the client, or by workers, of whom each sums a slice, so that the client moves one
    model for each step instead of one for every worker; auto: in the cloud when a gradient is too large for a reply"""
    patience_s: Annotated[float, Field(ge=0)] = 300
    """seconds for which trouble is waited out that hits every call (throttling, no network, expired credentials)"""
    function: str = "gradmux-worker"
    """aws: name or ARN of the Lambda function"""
    bucket: str | None = None
    """aws: the bucket for snapshots, data and large results"""
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """US dollars: a run that has cost so much, at list prices, stops and can be resumed; what is in flight then comes
    on top"""
    hour_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["inf"] = 10.0
    """V, US dollars that an hour of waiting is worth to you: schemes are chosen and sized so that the bill plus V times
    the time is least; 0: the cheapest, "inf": the fastest"""

    @property
    def waiting_usd(self) -> float:
        """V as a number."""
        return float(self.hour_usd)

    @property
    def most_workers(self) -> int:
        """n; for `auto` the most that one gradient may have."""
        return min(self.concurrency, AUTO_WORKERS) if self.workers == "auto" else self.workers

    @field_validator("hour_usd", mode="before")
    @classmethod
    def _endless(cls, given: object) -> object:
        """TOML has a number for it, JSON has none."""
        return "inf" if given == math.inf else given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.workers != "auto" and self.workers > self.concurrency:
            raise ValueError(
                f"workers = {self.workers} do not fit concurrency = {self.concurrency}: "
                "every round needs all of them in flight"
            )
        return self


def _spelled(value: Any) -> Any:
    """`true` as a scheme's parameter takes it; all else as it is."""
    return str(value).lower() if isinstance(value, bool) else value


def _closing_key(key: ClosingKey) -> Any:
    """As pydantic has it: type, default, and what the schema says."""
    bounds: dict[str, Any] = {name: bound for name, bound in (("ge", key.least), ("le", key.most)) if bound is not None}
    return Annotated[key.kind, Field(description=key.meaning, **bounds)], key.default


ClosingKeys = create_model("ClosingKeys", __base__=Section, **{n: _closing_key(key) for n, key in keys().items()})
"""The keys of [scheme] that say when a round closes: the fields of `closing.Closing`"""


class SchemeConfig(ClosingKeys):
    """The scheme by name, its own parameters beside it (letters or long names), and when a round closes."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[int | float | str, BeforeValidator(_spelled)]]

    name: str
    """one of `gradmux schemes`, or "auto": chosen by the delays of the first rounds, and again when they change"""
    max_load: Annotated[float, Field(ge=1)] | None = None
    """with name = "auto": the load of a worker is at most this multiple of 1/n"""
    deadline_s: Annotated[float, Field(gt=0)] | None = None
    """seconds: a round that cannot decode by then invokes what is missing once more, and after twice that time stops
    the run, which can be resumed"""
    approximate: bool = False
    """go on with the least-squares decode where a deadline would stop the job"""

    @model_validator(mode="after")
    def _closes(self) -> Self:
        try:
            assert self.closing
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def closing(self) -> Closing:
        """When rounds close, and what counts after that."""
        return Closing(**{name: getattr(self, name) for name in keys()})

    @property
    def parameters(self) -> dict[str, int | float | str]:
        """The scheme's own parameters as written."""
        return dict(self.__pydantic_extra__ or {})


Columns: TypeAlias = str | Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
Chosen: TypeAlias = Columns | Annotated[dict[str, Columns], Field(min_length=1)]
"""One array, columns side by side, or several inputs or targets by name or place"""
Figures: TypeAlias = Annotated[tuple[float, ...], Field(min_length=1, strict=False)]


class PadConfig(Section):
    """How lists of different lengths become rows of one length: they are filled at the end."""

    length: Annotated[int, Field(ge=1)]
    """of every row; a longer list is refused"""
    value: float = 0
    """what is filled in"""
    mask: str | None = None
    """an input of this name says which values are real; needs inputs by name"""


class DataConfig(Section):
    """The rows to train on and to judge by."""

    train: str
    """built-in ("digits:train"), a path (.npz, .npy, .parquet, .csv, a folder), or s3://bucket/prefix: docs/data.md"""
    eval: str | None = None
    """rows that every model is judged by at the end, named in the same way; not given: no model is"""
    batch_size: Annotated[int, Field(ge=1)]
    """rows of one step, shared out over the workers"""
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    """share of the rows of train that models are judged by instead of trained on, drawn by training.seed"""
    inputs: Chosen | None = None
    """what models get: a column or array, a list of columns side by side, or a table of several by name"""
    targets: Chosen | None = None
    """what the loss compares with, named in the same way"""
    weights: str | None = None
    """the column of the rows' weights, which multiply loss and count"""
    sampling: str | None = None
    """the column of numbers in proportion to which rows are drawn, with replacement; not given: each once an epoch"""
    types: dict[str, str] = Field(default_factory=dict)
    """column -> type, of CSV files: float32, int64, bool, ...; columns that are not named are not read"""
    pad: dict[str, PadConfig] = Field(default_factory=dict)
    """column of lists of different lengths -> { length, value, mask }"""
    scale: Annotated[float, Field(gt=0)] | None = None
    """what inputs of uint8 are divided by, on the workers: 255 gives 0 to 1"""
    mean: Figures | None = None
    """subtracted after that, one number or one for each channel (the first side of a row)"""
    std: Figures | None = None
    """divided by after that, in the same way"""
    transform: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")] | None = None
    """ "module:function" of the inputs of one row that workers are to train on, before it is scaled; random numbers are
    seeded by epoch and row"""

    @model_validator(mode="after")
    def _one_source_to_judge_by(self) -> Self:
        if self.eval is not None and self.validation is not None:
            raise ValueError("give eval or validation, not both")
        if self.std is not None and 0 in self.std:
            raise ValueError("std: nothing can be divided by 0")
        return self


def metric_name(code: str) -> str:
    """What a metric is called: a function's own name."""
    return code.rpartition(":")[2].rpartition(".")[2]


class TrainingConfig(Section):
    """What all models of the job have in common."""

    steps: Annotated[int, Field(ge=1)]
    """steps of the optimizer, per model"""
    loss: str = "cross_entropy"
    """a name in torch.nn.functional, or "module:name" of a loss module or of a function (output, target) -> one value a
    row, or (sum, count)"""
    metrics: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """figures beside the loss, for each step and for the evaluation rows: accuracy, top_5_accuracy, a loss's name in
    torch.nn.functional, or "module:name" of a function as a loss may be; rows' weights have no part in them"""
    seed: Annotated[int, Field(ge=0)] = 0
    """of the order of the rows, the initial weights, dropout, and what a scheme draws"""
    checkpoint_every: Annotated[int, Field(ge=0)] = 20
    """steps of one model between checkpoints; 0: only at the end"""
    dtype: Literal["float32", "float64"] = "float32"
    """of parameters, gradients and floating inputs"""
    results: Literal["auto", "float16"] = "auto"
    """how gradients travel: as they were computed (float64 where a code needs that), or scaled to half the bytes"""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """largest Euclidean norm of a gradient; a longer one is shortened to it, as torch's clip_grad_norm_ does"""
    clip_value: Annotated[float, Field(gt=0)] | None = None
    """largest absolute value of an element of a gradient; larger ones become it, as torch's clip_grad_value_ does"""
    pass_rows: Annotated[int, Field(ge=1)] | Literal["batch"] | None = None
    """a batch is cut into passes of at most so many rows, and each is one forward and backward, whichever worker
    computes it: what mixes rows, draws random numbers or changes buffers is then the same under every scheme; "batch":
    all in one; not given: 32 for models of which a trial on real rows shows that it matters, and for all others as
    many as a worker has"""
    norms: Literal["batch", "running"] = "batch"
    """how batch normalisation normalises while training: by the statistics of each pass, as torch does, or by running
    statistics, as for fine-tuning"""

    @field_validator("metrics")
    @classmethod
    def _differ(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        names = [metric_name(each) for each in metrics]
        taken = [name for name in names if names.count(name) > 1 or name in ("loss", "ema_loss")]
        if taken:
            raise ValueError(f"names must differ, and not be that of the loss: {taken[0]}")
        return metrics

    @model_validator(mode="after")
    def _clips_once(self) -> Self:
        if self.clip_norm is not None and self.clip_value is not None:
            raise ValueError("clip_norm and clip_value do not go together: give one of them")
        return self


class NamedClass(Section):
    """A class by name, with its arguments beside it."""

    model_config = ConfigDict(extra="allow")

    name: str
    """of the class; every other key is an argument of its constructor"""

    @property
    def arguments(self) -> dict[str, Any]:
        """What the constructor gets besides what we give it."""
        return dict(self.__pydantic_extra__ or {})


class GroupConfig(Section):
    """Parameters that the optimizer treats in their own way; one belongs to the first group that it fits."""

    model_config = ConfigDict(extra="allow")

    names: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """patterns of parameter names, as the module has them: ["*.bias"]"""
    layers: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """patterns of the classes of layers: ["*Norm*"]; every other key is an option of the optimizer, as
    weight_decay = 0.0"""

    @property
    def arguments(self) -> dict[str, Any]:
        """The optimizer's options for this group."""
        return dict(self.__pydantic_extra__ or {})

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if not (self.names or self.layers):
            raise ValueError('needs names or layers, patterns of the parameters that it is for: names = ["*.bias"]')
        if not self.arguments:
            raise ValueError("sets no option of the optimizer, for example weight_decay = 0.0")
        return self


class OptimizerConfig(NamedClass):
    """An optimizer by name, with its arguments beside it."""

    groups: Annotated[tuple[GroupConfig, ...], Field(strict=False)] = ()
    """parameters with other options: [{ names = ["*.bias"], layers = ["*Norm*"], weight_decay = 0.0 }]"""


class ModelConfig(Section):
    """One model: how to make it and how to step it."""

    name: Name
    """of its files and columns; letters, digits and . _ = + - only, and each model its own"""
    factory: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
    """ "module:function" returning an nn.Module; the module is looked for beside the job file first"""
    args: dict[str, Any] = Field(default_factory=dict)
    """keyword arguments of the factory"""
    optimizer: OptimizerConfig = OptimizerConfig(name="SGD")
    """a class of torch.optim with its arguments, { name = "Adam", lr = 1e-3 }, or your own, "module:name": it is called
    with the parameters, or with the model if its first argument is called model"""
    scheduler: NamedClass | None = None
    """a class of torch.optim.lr_scheduler in the same way, WarmupCosine, or your own, called with the optimizer; it is
    stepped after every step of the optimizer"""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """decay, for each step, of a moving average of the weights, which is saved and evaluated beside them: 0.999"""


class JobConfig(Section):
    """A whole job: every section of the job file but those that backends add (`job_file.job_class`)."""

    name: RunName = "job"
    """runs are called after it: NAME-1, NAME-2, ..."""
    cluster: ClusterConfig = ClusterConfig()
    """where workers run and how many at once"""
    scheme: SchemeConfig
    """how batches are coded, and when a round closes"""
    data: DataConfig
    """the rows to train on and to judge by"""
    training: TrainingConfig
    """what all models have in common"""
    models: Annotated[tuple[ModelConfig, ...], Field(min_length=1, strict=False)]
    """what is trained, side by side"""
    sweep: dict[str, Annotated[tuple[Any, ...], Field(min_length=1, strict=False)]] = Field(default_factory=dict)
    """dotted key of a model -> values; each combination is one more model"""

    @model_validator(mode="after")
    def _models_are_distinct(self) -> Self:
        names = [model.name for model in self.expanded_models()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"models: the name {twice[0]!r} occurs twice; every model needs its own")
        return self

    def section(self, name: str, kind: type[AnySection]) -> AnySection:
        """The table of a backend: as the job has it, else with all its defaults."""
        found = getattr(self, name, None)
        return found if isinstance(found, kind) else kind()

    def with_section(self, name: str, section: Section) -> Self:
        """The same job with another table of that name."""
        return self.model_copy(update={name: section})

    def expanded_models(self) -> tuple[ModelConfig, ...]:
        """The models of the job in order: each of [[models]] once per combination of [sweep].

        Raises: ValueError when a swept key or value does not fit a model.
        """
        combinations = [dict(zip(self.sweep, values, strict=True)) for values in product(*self.sweep.values())]
        return tuple(_varied(model, combination) for model in self.models for combination in combinations)


def _varied(model: ModelConfig, combination: dict[str, Any]) -> ModelConfig:
    """`model` with the swept values put in, named after them: `mlp-lr=0.01`."""
    if not combination:
        return model
    values = model.model_dump()
    for key, value in combination.items():
        _put(values, key, value)
    suffix = "-".join(f"{key.rpartition('.')[2]}={_as_name(value)}" for key, value in combination.items())
    values["name"] = f"{model.name}-{suffix}"
    try:
        return ModelConfig.model_validate(values)
    except ValidationError as error:
        raise ValueError(f"sweep: {suffix} does not give a valid model: {error.errors()[0]['msg']}") from None


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    """Sets the value under a dotted key of a model: `optimizer.lr`, `args.hidden` or `factory`."""
    head, _, rest = key.partition(".")
    if head in ("args", "optimizer", "scheduler") and rest:
        values[head] = {**(values[head] or {}), rest: value}
    elif key == "factory":
        values[key] = value
    else:
        raise ValueError(
            f"sweep: {key!r} is not a key of a model; use args.NAME, optimizer.NAME, scheduler.NAME or factory"
        )


def _as_name(value: Any) -> str:
    """A swept value as part of a name: what is not allowed there becomes `_`."""
    return "".join(c if c.isalnum() or c in "._+-" else "_" for c in str(value))
