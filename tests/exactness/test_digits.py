"""BatchNorm from scratch through real workers: a small residual net learns digits in 60 steps, as with plain torch."""

from __future__ import annotations

from pathlib import Path

from gradmux import Job, Model, train
from tests.exactness.digits_models import Residual

STEPS, ENOUGH = 60, 0.95


def test_a_residual_net_with_batch_norm_learns_digits_from_scratch(tmp_path: Path) -> None:
    """Normalising by running statistics from scratch ends at 0.3 to 0.7 here."""
    job = Job(
        models=[Model("residual", Residual, optimizer=("AdamW", {"lr": 3e-3}))],
        data="digits:train",
        eval_data="digits:test",
        batch_size=256,
        steps=STEPS,
        workers=2,
    )
    trained = train(job, home=tmp_path)
    judged = trained.run.models[0].eval
    assert judged["accuracy"] >= ENOUGH, judged
