"""`backup`: uncoded, and each task that is late is invoked once more; its first answer counts. The practitioner's way.

Late is what is missing when a share q of the answers is in, or after (1 + mu) times what the fastest took, whichever
comes first; q = 1 leaves the time alone, and a large mu the share. When that is, the scheme only says (`asks.py`): the
loop invokes. Load 1/n, delay 0. A second attempt is a new draw of the delay, so it mends rare slow answers, but it
starts late: the round still takes about (1 + mu) + 1 times the fastest.

By hand, n = 4, q = 3/4, mu large: workers 0, 1 and 3 answer after 1.0, 1.1 and 1.2 s, so chunk 2 is invoked again at
1.2 s; that answers at 2.3 s, the first invocation would at 9 s: g = g_0 + g_1 + g_2 + g_3 at 2.3 s.
Read next: `pipeline.py`.
"""

from __future__ import annotations

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.asks import Backup
from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.facts import Facts
from gradmux.orchestrator.schemes.scheme import Context, Parameter, Params, Sample, Scheme, SchemeInfo, StragglerModel
from gradmux.orchestrator.schemes.stragglers import PerRound, choose_model
from gradmux.orchestrator.schemes.synchronous import OneRoundScheme


class BackupTasks(OneRoundScheme):
    """`asks.BacksUp` over one chunk per worker."""

    def __init__(self, backup: Backup, context: Context) -> None:
        super().__init__("backup", FractionalCode(context.workers, 0, redraw=False), context)
        self.backup = backup

    def straggler_model(self, name: str) -> StragglerModel:
        """No worker may straggle for good."""
        return choose_model(self.name, name, PerRound(0), PerRound(0))


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when q or mu is out of range."""
    share, slack = float(params["share"]), float(params["mu"])
    if not 0 < share <= 1:
        raise ConfigError(
            f"backup: q (share) = {share:g} is not a share of the workers: use 0 < q <= 1, for instance 0.9"
        )
    if not slack >= 0:
        raise ConfigError(f"backup: mu = {slack:g} must be at least 0: 1.0 waits twice as long as the fastest took")
    return BackupTasks(Backup(share=share if share < 1 else None, slack=slack), context)


INFO = SchemeInfo(
    name="backup",
    title="Uncoded with backup tasks: what is late is invoked once more, the first answer counts",
    build=build,
    parameters=(
        Parameter("share", "q", float, 0.9, "of the answers, after which the missing tasks are invoked again"),
        Parameter("mu", "mu", float, 1.0, "they are, too, after (1 + mu) times what the fastest took"),
    ),
    constraints="0 < q <= 1, mu >= 0",
    load="1/n",
    delay="0",
    tolerates="any stragglers whose second attempt is fast",
    costs="the second invocations, at most one per task; a round takes at least twice the fastest once anybody is late",
    avoid="when slow answers are common rather than rare: a code has the second answer in flight already",
    source="baseline (speculative execution: Dean and Ghemawat 2004)",
    example=(
        "n = 4, q = 3/4: workers 0, 1, 3 answer by 1.2 s, chunk 2 is invoked again then and answers at 2.3 s; "
        "its first invocation would have at 9 s."
    ),
    sample=Sample(4, {"q": 0.75}, rounds=1, late={0: (2,)}),
    facts=Facts(),
)
