"""`uncoded` and `gc` under the papers' wait rule: no memory, so that every round is decided by itself.

Their model lets any s workers go; "either" lets every set go without which the round decodes. Read next:
`multiplexed_mu.py`.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.one_round import decodes_s, settle
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.published.mu_rule import Cut
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.policies import Mu


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every round of every column."""
    wait = setting.wait
    assert isinstance(wait, Mu)
    cut = Cut(draws, wait.mu)
    decode_s, shift_s = decodes_s(batch, setting, draws)
    ready_s = np.empty_like(decode_s)
    waits = np.zeros(batch.size, dtype=np.int64)
    limit = batch.tolerance()
    for t in range(setting.jobs):
        late = cut.late(t, shift_s[t])
        if wait.straggler_model == "either":
            limit = draws.workers - 1 - np.searchsorted(draws.sorted_s[t], decode_s[t])
        refused = late > limit
        let_go = np.where(refused, 0 if wait.wait_out == "all" else limit, late)
        ready_s[t] = cut.closing(t, late, let_go).duration_s(shift_s[t])
        waits += refused
    return settle(ready_s, shift_s, waits, setting, draws, detail=detail)
