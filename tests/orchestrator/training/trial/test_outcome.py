"""What the trial finds out about a model by playing it, and that it leaves the model as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.models import ModelPlan, prepare
from gradmux.orchestrator.training.trial.mixing import find_mixing
from gradmux.orchestrator.training.trial.outcome import Outcome, find_outcome
from gradmux.orchestrator.training.trial.playing import RowsOf
from tests.orchestrator.training.bench import make_dataset
from tests.orchestrator.training.trial import models


def outcome(factory: Any, loss: Any = "cross_entropy", norms: Any = "batch", **fields: Any) -> Outcome:
    plan = ModelPlan("net", factory, loss=loss, norms=norms, pass_rows=32, **fields)
    trained = prepare(plan)
    rows = RowsOf(make_dataset(200, dtype=plan.dtype), trained.model.dtype)
    before = {name: each.clone() for name, each in trained.module.state_dict().items()}
    found = find_outcome(trained.model, rows, "net", 32)
    after = trained.module.state_dict()
    assert all(torch.equal(after[name], each) for name, each in before.items()), "the model is as it was"
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("factory", [models.Plain, models.Noting, models.Table])
def test_rows_that_do_not_interact_are_free_and_nothing_is_said(factory: Any, dtype: str) -> None:
    found = outcome(factory, dtype=dtype)
    assert not found.fixed
    assert found.warning("net", 32) is None


@pytest.mark.parametrize(
    ("factory", "where"),
    [
        (models.normed, "1 (BatchNorm1d)"),
        (models.Centred, "the forward of Centred"),
        (models.HiddenCentre, "inner (Centred)"),
        (models.Capacity, "the forward of Capacity"),
    ],
)
def test_the_layer_in_which_rows_interact_is_named(factory: Any, where: str) -> None:
    found = outcome(factory)
    assert found.mixing is not None
    assert found.mixing.where == where
    said = found.warning("net", 32)
    assert said is not None
    assert where in said
    assert "32 rows" in said
    assert "\n" not in said


def asleep(layer: nn.Module) -> nn.Module:
    """At its first weights, and near them, the norm is given the same zeros in every row."""
    return nn.Sequential(nn.Linear(6, 6), nn.Threshold(1e3, 0.0), layer, nn.Linear(6, 3))


NORMS = {
    "tracked": lambda: nn.BatchNorm1d(6),
    "not tracked": lambda: nn.BatchNorm1d(6, track_running_stats=False),
    "not tracked, kept in evaluation mode": lambda: Evaluated(6, track_running_stats=False),
    "synchronised": lambda: nn.SyncBatchNorm(6),
}


class Evaluated(nn.BatchNorm1d):
    """Of the user's own, never in training mode."""

    def train(self, mode: bool = True) -> Evaluated:
        super().train(False)
        return self


@pytest.mark.parametrize("kind", NORMS)
def test_batch_norm_has_fixed_passes_even_where_these_weights_show_no_interaction(kind: str) -> None:
    found = outcome(lambda: asleep(NORMS[kind]()))
    assert found.fixed
    assert found.mixing is not None
    assert found.mixing.where.startswith("2 (")


def test_batch_norm_that_is_kept_in_evaluation_mode_or_runs_has_no_need_of_them() -> None:
    assert not outcome(lambda: asleep(Evaluated(6))).fixed
    assert not outcome(lambda: asleep(nn.BatchNorm1d(6)), norms="running").fixed


def test_a_loss_that_mixes_rows_is_named() -> None:
    found = outcome(models.Plain, models.contrastive)
    assert found.mixing is not None
    assert found.mixing.where == "the loss (contrastive)"


def test_interaction_that_only_gradients_show_is_named() -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Embedding(50, 8, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(32, 3))

    from gradmux.orchestrator.training.dataset import Dataset

    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 50, (200, 4), generator=generator).numpy()
    trained = prepare(ModelPlan("net", model, pass_rows=32))
    found = find_mixing(trained.model, RowsOf(Dataset(tokens, tokens[:, 0] % 3), torch.float32), [4, 32])
    assert found is not None
    assert found.where == "0 (Embedding)"


def test_running_statistics_let_rows_be_by_themselves() -> None:
    assert not outcome(models.normed, norms="running").fixed


def test_random_numbers_are_told_from_interaction() -> None:
    dropping, numpy = outcome(models.dropping), outcome(models.NumpyDrop)
    assert (dropping.mixing, dropping.draws) == (None, ("torch",))
    assert (numpy.mixing, numpy.draws) == (None, ("numpy",))
    assert dropping.fixed
    assert numpy.fixed


def test_buffers_that_a_forward_changes_are_named_but_for_running_statistics() -> None:
    assert outcome(models.Moving).buffers == ("average", "count")
    assert outcome(models.normed).buffers == ()


@pytest.mark.parametrize(
    ("factory", "line"),
    [
        (models.Shrinking, "changes parameter head.weight"),
        (models.Counting, "changes calls of the forward of Counting"),
        (models.FirstComer, "changes centre of the forward of FirstComer"),
        (models.OwnGenerator, "changes generator of the forward of OwnGenerator"),
        (models.Entropy, "the same rows, weights and seed give other results"),
    ],
)
def test_what_no_worker_can_share_is_refused_in_one_line(factory: Any, line: str) -> None:
    with pytest.raises(ConfigError, match=line) as refusal:
        outcome(factory)
    assert "\n" not in str(refusal.value)
    assert "model 'net'" in str(refusal.value)


def test_layers_that_the_user_keeps_in_evaluation_mode_stay_so() -> None:
    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self[1].eval()
            return self

    def frozen() -> nn.Module:
        return Frozen(*models.normed().children())

    assert not outcome(frozen).fixed
