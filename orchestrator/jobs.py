"""Which model and step a job is: job t belongs to model t mod M and is its step t div M.

Pure arithmetic; knows neither schemes nor tensors. Read next: `rounds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradmux.orchestrator.errors import ConfigError


@dataclass(frozen=True, slots=True)
class JobPlan:
    """M models of `steps` steps each, interleaved: job t needs the weights that job t - M produced.

    A resumed run counts its jobs from 0 again; `first` says where in the whole run its job 0 stands.
    """

    models: int
    """M"""
    steps: int
    """per model, over the whole run"""
    first: int = 0
    """jobs of the whole run that were done before this life of it began"""

    @property
    def jobs(self) -> int:
        """J, jobs that this life of the run has to do: M * steps - first."""
        return self.models * self.steps - self.first

    def model(self, job: int) -> int:
        """Index of the model that `job` trains."""
        return (job + self.first) % self.models

    def step(self, job: int) -> int:
        """Which step of its model `job` is, from 0."""
        return (job + self.first) // self.models

    def predecessor(self, job: int) -> int | None:
        """The job of this life whose decode gives the weights that `job` starts from; None when they are there."""
        return job - self.models if job >= self.models else None


def require_models(models: int, delay: int, scheme: str) -> None:
    """Refuses a scheme whose delay T does not fit M models: a job's weights would not be ready in time.

    Raises: ConfigError that names M, T and what would fit.
    """
    if models >= delay + 1:
        return
    fits = (
        f"any scheme with delay T <= {models - 1}" if models > 1 else "a scheme without delay (uncoded, gc, pipeline)"
    )
    raise ConfigError(
        f"{scheme} has delay T = {delay} and so needs at least T + 1 = {delay + 1} models side by side, but this job "
        f"has M = {models}: add {delay + 1 - models} model(s), or use smaller parameters or {fits}"
    )
