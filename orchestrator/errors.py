"""The exceptions that end a run, and the exit code that each one gives the shell.

    GradmuxError                 anything of ours; exit code 1
    ├── ConfigError              the user asked for something that cannot be: exit code 2, before any worker is invoked
    ├── PreflightError           credentials, bucket or function not usable: exit code 3
    ├── SchemeFault              a scheme breaks what it promises: exit code 1, or 2 before any worker is invoked
    ├── QuotaError               the account allows fewer concurrent invocations than the job needs: exit code 4
    └── RunStopped               the run ended early and can be resumed: exit code 5
        ├── Interrupted          Ctrl-C, or the machine shuts down
        ├── RunCancelled         `gradmux cancel`
        ├── TaskFailed           one task failed more often than its budget allows
        ├── Diverged             a model's loss or gradient is not finite any more
        ├── DeadlinePassed       a round could not be decoded in time
        ├── RowsInteract         rows of a model interact that did not when it was tried
        └── BudgetSpent          the run reached the money it may cost

What a round expects (slow, failed, throttled, late workers) is data, not an exception: see `ports.Arrival`.
Read next: `ports.py`.
"""

from __future__ import annotations


class GradmuxError(Exception):
    """Anything that ends a run; its text is one line that says what to do."""

    exit_code = 1
    state = "failed"
    """of the run that it ends, as the record says it"""


class ConfigError(GradmuxError):
    """The job, a parameter or an input file is wrong; nothing was invoked."""

    exit_code = 2


class PreflightError(GradmuxError):
    """The place where the job should run is not usable (credentials, function, bucket)."""

    exit_code = 3


class SchemeFault(GradmuxError):
    """A scheme breaks what it promises: its text names scheme, round, worker and chunk as far as they matter."""

    def __init__(self, scheme: str, where: str, what: str) -> None:
        """`where`: "round 3", "job 4 (decoded in round 5)"; empty where it is in no round."""
        self.scheme, self.where = scheme, where
        super().__init__(f"scheme {scheme}, {where}: {what}" if where else f"scheme {scheme}: {what}")

    def before_any_worker(self) -> SchemeFault:
        """The same, as a mistake that has cost nothing."""
        self.exit_code = ConfigError.exit_code
        return self


class QuotaError(GradmuxError):
    """The account or the emulator allows fewer concurrent invocations than the job needs."""

    exit_code = 4


class RunStopped(GradmuxError):
    """The run ended early with everything saved; `gradmux resume` continues it."""

    exit_code = 5
    state = "stopped"


class Interrupted(RunStopped):
    """Somebody asked the process to end."""


class RunCancelled(RunStopped):
    """Somebody cancelled the run; its workers are told not to compute any more."""

    state = "cancelled"


class TaskFailed(RunStopped):
    """One task failed in every attempt of its budget."""

    def __init__(self, *, round: int, worker: int, jobs: tuple[int, ...], attempts: int, reason: str) -> None:
        self.round, self.worker, self.jobs, self.attempts, self.reason = round, worker, jobs, attempts, reason
        named = ", ".join(map(str, jobs))
        super().__init__(f"round {round}, worker {worker} (job {named}) failed in {attempts} attempts: {reason}")

    def named(self, tasks: str, hint: str) -> TaskFailed:
        """The same, said in the user's words: which model and step `tasks` are, and what to do next."""
        told = TaskFailed(
            round=self.round, worker=self.worker, jobs=self.jobs, attempts=self.attempts, reason=self.reason
        )
        where = f"round {self.round}, worker {self.worker}, {self.attempts} attempts"
        told.args = (f"{tasks} failed ({where}; {hint}): {self.reason}",)
        return told


class Diverged(RunStopped):
    """A model's loss or gradient is not finite any more: to go on would only repeat it."""

    def __init__(self, model: str, step: int, what: str, lr: object = None, others: str = "") -> None:
        """`what` is not finite; `lr`: of the model's optimizer, when the job says it; `others`: of the other models."""
        self.model, self.step, self.what, self.lr = model, step, what, lr
        now = "" if lr is None else f" (now {lr})"
        super().__init__(
            f"model {model!r}, step {step} has diverged: {what.strip()}; lower its optimizer's lr{now} or set "
            f"training.clip_norm, then submit again{others}"
        )


class DeadlinePassed(RunStopped):
    """A round passed its deadline and what is missing could not be had again."""

    def __init__(
        self, *, round: int, jobs: tuple[int, ...], deadline_s: float, silent: bool = False, run: str = "RUN"
    ) -> None:
        """`silent`: not one answer of use has come, so that there is nothing to estimate from either."""
        self.round, self.jobs, self.deadline_s, self.silent = round, jobs, deadline_s, silent
        wanted = f"decode job {', '.join(map(str, jobs))}" if jobs else "get the answers that later rounds rely on"
        otherwise = "; no answer came, so it cannot be estimated either" if silent else ""
        advice = "" if silent else ", or submit again with approximate = true, for the least-squares decode"
        super().__init__(
            f"round {round} could not {wanted} within {deadline_s:g} s (twice deadline_s){otherwise}; "
            f"`gradmux resume {run} --deadline-s S` goes on with a longer one{advice}"
        )

    def of(self, run: str) -> DeadlinePassed:
        """The same, with the run's name."""
        return DeadlinePassed(round=self.round, jobs=self.jobs, deadline_s=self.deadline_s, silent=self.silent, run=run)


class RowsInteract(RunStopped):
    """Rows of a model interact, which they did not when it was tried: its passes must be fixed from here on."""

    def __init__(self, model: str, steps: int, where: str, pass_rows: int, run: str) -> None:
        """`steps` are done; the run is kept as it was at the checkpoint before, from where it can go on."""
        super().__init__(
            f"model {model!r}, after {steps} steps: rows interact in {where}, which they did not when it was tried, so "
            f"what is trained depends on how batches are cut: `gradmux resume {run}` goes on from the last checkpoint "
            f"with passes of up to {pass_rows} rows, for any number of workers (training.pass_rows)"
        )


class BudgetSpent(RunStopped):
    """The run has cost what it may cost."""


def raised_at(error: BaseException) -> str:
    """The place that raised: file:line, in function."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "place unknown"
    code = trace.tb_frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}, in {code.co_name}"
