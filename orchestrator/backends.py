"""Where jobs run: what a backend is, and the table of those that are installed.

A `Backend` opens a `Place` for each life of a run: a store, and fleets whose workers share it. It also says what it can
take, what its calls cost and how long they take, which tables of a job file are its own, and whether it is fit for a
job. It joins by an entry point of group "gradmux.backends" that names the object, or a class or function that makes it.

Nothing here supposes HTTP, AWS or S3. Knows no concrete backend, and imports nothing heavy. Read next:
docs/adding-a-backend.md; `infra/local/backend.py` and `infra/aws/backend.py` are two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.former import why_missing

if TYPE_CHECKING:
    from gradmux.orchestrator.config import JobConfig, Section
    from gradmux.orchestrator.delays.calls import CallDelays
    from gradmux.orchestrator.findings import Finding
    from gradmux.orchestrator.fleets.calling import MakesRequests, WorkerFleet
    from gradmux.orchestrator.ports import Packages, Store, StoreClient
    from gradmux.orchestrator.prices import Prices
    from gradmux.orchestrator.training.stored import Shelf

ENTRY_POINTS = "gradmux.backends"


# --- what a backend says of itself -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limits:
    """What a backend can take; None: no limit."""

    concurrency: int | None = None
    """invocations in flight"""
    memory_mb: int | None = None
    """of one worker"""
    timeout_s: float | None = None
    """of one invocation"""
    request_bytes: int | None = None
    """of one request, as JSON"""
    event_bytes: int | None = 0
    """of one request whose answer is put into the store; 0: workers cannot be invoked so"""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a backend's workers are, beside this process."""

    slower: float = 1.0
    """by what factor the same computation takes longer there"""
    moving_bytes_per_s: float = inf
    """to and from the store, by one worker: comes on top of the computation; inf where that was measured with it"""
    first_byte_s: float = 0.0
    """from a request to the store until its answer begins: comes on top as often as one is waited for"""
    summing_bytes_per_s: float = 75e6
    """of one worker that sums gradients in the store"""


@dataclass(frozen=True, slots=True)
class Billed:
    """What workers are billed by."""

    memory_mb: int | None = None
    """None: not known, and taken to be as the job says"""
    arm: bool = False
    """are they on arm64, which costs less?"""


# --- a place -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlaceNote:
    """Where a life runs: what another process needs to reach its store."""

    backend: str
    timeout_s: float = 60.0
    """how long an invocation can still run when its client is gone"""
    billed: Billed = Billed()
    own: Mapping[str, Any] = field(default_factory=dict)
    """what the backend wants to find in it again: JSON values; of secrets only one that is good for this place alone"""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Out of JSON. Raises: TypeError, KeyError, ValueError."""
        if "own" in fields:
            note = cls(**{**fields, "billed": Billed(**fields["billed"])})
        else:
            billed = Billed(fields.get("memory_mb"), fields.get("arm", False))  # as it was written until version 0.1
            own = {name: fields[name] for name in ("bucket", "s3_url", "function", "lambda_url") if name in fields}
            note = cls(fields["backend"], fields.get("timeout_s", 60.0), billed, own)
        note._require_kinds()
        return note

    def _require_kinds(self) -> None:
        """Raises ValueError: a file may hold anything."""
        memory_mb, arm = self.billed.memory_mb, self.billed.arm
        memory = memory_mb is None or (type(memory_mb) is int and memory_mb > 0)
        timeout = type(self.timeout_s) in (int, float) and 0 <= self.timeout_s < inf
        names = isinstance(self.backend, str) and isinstance(self.own, Mapping)
        if not (memory and timeout and names and isinstance(arm, bool)):
            raise ValueError("not a place where a life runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What a fleet is made for."""

    requests: MakesRequests
    """makes the content of its calls"""
    store: Store
    """where workers put what does not fit into an answer; waits trouble out"""
    run: str
    """its name in the store; answers carry it"""
    timeout_s: float
    """after which an invocation counts as lost"""
    patience_s: float
    """how long trouble that hits every call is waited out"""
    shelf: Shelf | None = None
    """where results are noted that stay in the store, to be summed by workers; None: they are fetched"""


class Place(Protocol):
    """Where one life of a run has its store and its workers. Ends with the context that `Backend.open` gave."""

    @property
    def bucket(self) -> str:
        """What requests call the store: by this name the workers open it."""
        ...

    @property
    def root(self) -> str:
        """The same for people: `s3://bucket`, or a folder."""
        ...

    @property
    def pool(self) -> str:
        """Whose limit on invocations this is: runs at places with one pool share their slots. A file's name."""
        ...

    def describe(self) -> str:
        """Where calls really go, in one line."""
        ...

    def note(self) -> PlaceNote:
        """For `Backend.reopen`, in another process."""
        ...

    def ended(self) -> str:
        """Why nothing answers here any more, in one line; empty while something may."""
        ...

    def store(self) -> StoreClient:
        """A new client of the store, with the credentials as they are now. Raises: PreflightError."""
        ...

    def fleet(self, plan: FleetPlan) -> WorkerFleet:
        """Workers, none of which is started yet. Raises: PreflightError."""
        ...


# --- a backend ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Examination:
    """What `gradmux doctor` is to look at."""

    home: Path
    job: JobConfig | None = None
    worker_mb: int | None = None
    """what a worker takes for the job's largest model; None: not known"""
    workers: int | None = None
    """how many shall run at once; None: as the job says"""
    service: bool = False
    """look at what runs already under `home`, if something does"""
    named: Mapping[str, str] = field(default_factory=dict)
    """options that are the backend's own: `name`, `function`, `bucket`"""


class Backend(Protocol):
    """What an entry point of "gradmux.backends" names. One object serves all jobs of a process."""

    @property
    def name(self) -> str:
        """What `cluster.backend` calls it."""
        ...

    @property
    def limits(self) -> Limits: ...

    @property
    def prices(self) -> Prices:
        """By which a run here is billed; the user's own table goes before it."""
        ...

    @property
    def sections(self) -> Mapping[str, type[Section]]:
        """Tables of a job file that are this backend's own: name -> what may stand in it. All keys need defaults."""
        ...

    @property
    def mirrored(self) -> bool:
        """Does a run keep its folder in the store, too? Not where the store ends with the run."""
        ...

    @property
    def workers_outlive_run(self) -> bool:
        """Can a worker still compute, and be billed, when the run's process is gone?"""
        ...

    def validate(self, job: JobConfig) -> None:
        """Whether its keys go together, as far as the job alone tells. Raises: ConfigError, one line per mistake."""
        ...

    def prepare(self, job: JobConfig, folder: Path) -> JobConfig:
        """The job with its paths made absolute, from `folder`, and tried. Raises: ConfigError. Invokes nothing."""
        ...

    def open(self, job: JobConfig, life: int = 0) -> AbstractContextManager[Place]:
        """A place for one life of a run, for as long as the context is open.

        Raises: QuotaError when fewer calls are allowed at once than the job needs, PreflightError.
        """
        ...

    def reopen(self, note: PlaceNote) -> StoreClient:
        """The store of a run that another process runs, or ran. Raises: PreflightError."""
        ...

    def delays(self, job: JobConfig) -> CallDelays:
        """What calls are taken to take when nothing has been measured. Raises: ConfigError."""
        ...

    def pace(self, job: JobConfig) -> Pace: ...

    def examine(self, asked: Examination) -> Iterator[Finding]:
        """Whether it is fit for a job: each finding as soon as it is made. Raises: PreflightError."""
        ...


@runtime_checkable
class InjectsFaults(Protocol):
    """A backend in which things can be made to go wrong."""

    def with_faults(self, job: JobConfig, rates: Mapping[str, float]) -> JobConfig:
        """The job with these kinds of faults added, kind -> share of invocations. Raises: ConfigError."""
        ...


@runtime_checkable
class KnowsPackages(Protocol):
    """A backend whose workers have other packages than this process."""

    def packages(self, job: JobConfig) -> Packages:
        """Asked when a model's code imports what not every worker has. Raises nothing: who cannot know is not sure."""
        ...


# --- the table ---------------------------------------------------------------------------------------------------


_KNOWN: dict[str, Backend] = {}
"""those that are loaded, by name"""
_MEMBERS = [name for name in vars(Backend) if not name.startswith("_")]


def register(backend: Backend) -> None:
    """Adds a backend to this process's table; the same one twice is fine. Raises: ConfigError for a name in use."""
    known = _KNOWN.setdefault(backend.name, backend)
    if known is not backend:
        raise ConfigError(f"backend {backend.name!r} is already registered: give yours another name")


def forget(name: str) -> None:
    """Takes back what `register` has added."""
    _KNOWN.pop(name, None)


def find_backend(name: str) -> Backend:
    """The backend called `name`. Raises: ConfigError with the closest name and all names, or why it cannot be had."""
    if name in _KNOWN:
        return _KNOWN[name]
    points = entry_points(group=ENTRY_POINTS)
    if name not in points.names:
        names = sorted({*points.names, *_KNOWN})
        close = get_close_matches(name, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"there is no backend {name!r}{hint}; installed: {', '.join(names) or 'none'}")
    _KNOWN[name] = _loaded(points[name])
    return _KNOWN[name]


def installed_backends() -> tuple[Backend, ...]:
    """All that can be loaded, by name. One that cannot keeps nobody from the others: naming it says why."""
    names = {*entry_points(group=ENTRY_POINTS).names, *_KNOWN}
    found = []
    for name in sorted(names):
        try:
            found.append(find_backend(name))
        except ConfigError:
            continue
    return tuple(found)


def _loaded(point: EntryPoint) -> Backend:
    """The object that an entry point names, or makes. Raises: ConfigError."""
    try:
        found = point.load()
        makes = isinstance(found, type) or (callable(found) and not hasattr(found, "open"))
        backend: Backend = found() if makes else found
    except Exception as error:  # of a package from elsewhere: importing it may raise anything
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}{why_missing(error)}"
        raise ConfigError(
            f"backend {point.name!r} cannot be loaded from {point.value}: {reason}; install its package anew"
        ) from error
    lacks = [member for member in _MEMBERS if not hasattr(backend, member)]
    if lacks:
        raise ConfigError(f"backend {point.name!r}: {point.value} is no backend, it lacks {', '.join(lacks)}")
    if backend.name != point.name:
        raise ConfigError(f"backend {point.name!r}: {point.value} calls itself {backend.name!r}")
    return backend


def open_place(job: JobConfig, life: int = 0) -> AbstractContextManager[Place]:
    """The job's backend, ready for one life of a run. Raises: as `Backend.open`."""
    return find_backend(job.cluster.backend).open(job, life)


def with_faults(job: JobConfig, rates: Mapping[str, float]) -> JobConfig:
    """The job with these kinds of faults added, if any. Raises: ConfigError where its backend injects none."""
    if not rates:
        return job
    backend = find_backend(job.cluster.backend)
    if not isinstance(backend, InjectsFaults):
        others = " or ".join(repr(each.name) for each in installed_backends() if isinstance(each, InjectsFaults))
        raise ConfigError(f"--faults are an emulator's: they need cluster.backend = {others}, not {backend.name!r}")
    return backend.with_faults(job, rates)


def require_limits(job: JobConfig, backend: Backend) -> None:
    """Whether the job asks for no more than its backend can take. Raises: ConfigError, one line per mistake."""
    cluster, most = job.cluster, backend.limits
    wrong = [
        f"cluster.{key}: must be at most {limit:g} on {backend.name} (is {getattr(cluster, key):g})"
        for key, limit in (("memory_mb", most.memory_mb), ("timeout_s", most.timeout_s))
        if limit is not None and getattr(cluster, key) > limit
    ]
    if most.concurrency is not None and cluster.most_workers > most.concurrency:
        wrong.append(f"cluster.workers: {backend.name} has {most.concurrency} at once (are {cluster.most_workers})")
    if cluster.invoke == "event" and most.event_bytes == 0:
        wrong.append(f'cluster.invoke: workers on {backend.name} answer at once: use "request"')
    if wrong:
        raise ConfigError("\n".join(wrong))
