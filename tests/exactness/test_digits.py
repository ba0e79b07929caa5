"""BatchNorm from scratch through real workers: a small residual net learns digits in 60 steps, as with plain torch.

Under schemes of every kind that is exact: what is computed once, in coded sums and early messages, over several rounds,
and in whole stretches of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gradmux import Job, Model, train
from tests.exactness.digits_models import Residual

STEPS, ENOUGH = 60, 0.95
SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "uncoded": {"workers": 2},
    "gc-partial": {"workers": 3, "stragglers": 1, "code": "cyclic", "parameters": {"m": 1}},
    "m-sgc": {"workers": 4, "burst": 1, "window": 2, "max_stragglers": 1},
    "stretch": {"workers": 2, "parameters": {"steps": 10}},
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_residual_net_with_batch_norm_learns_digits_from_scratch(scheme: str, tmp_path: Path) -> None:
    """Normalising by running statistics from scratch ends at 0.3 to 0.7 here."""
    names = ("residual", "twin") if scheme == "m-sgc" else ("residual",)
    job = Job(
        models=[Model(name, Residual, optimizer=("AdamW", {"lr": 3e-3})) for name in names],
        data="digits:train",
        eval_data="digits:test",
        batch_size=256,
        steps=STEPS,
        scheme=scheme,
        **SCHEMES[scheme],
    )
    trained = train(job, home=tmp_path)
    for model in trained.run.models:
        assert model.eval["accuracy"] >= ENOUGH, (model.name, model.eval)
