"""Buffers that no state dict has: a resumed run goes on with what forwards made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from gradmux.lambda_worker.state import decode_state, encode_state
from gradmux.orchestrator.training.checkpoint import UNSAVED, load_state, save_state
from gradmux.orchestrator.training.models import ModelPlan, Trained, prepare


class Keeping(nn.Module):
    """Keeps a mean that it does not save, and one that it does."""

    unsaved: Tensor
    saved: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("unsaved", torch.zeros(3, dtype=torch.int64), persistent=False)
        self.register_buffer("saved", torch.zeros(2))


def trained() -> Trained:
    return prepare(ModelPlan("m", Keeping))


def test_they_survive_a_checkpoint() -> None:
    before, after = trained(), trained()
    cast(Keeping, before.module).unsaved.copy_(torch.tensor([1, 2, 2**40]))
    cast(Keeping, before.module).saved.fill_(0.5)
    load_state(after, save_state(before))
    assert cast(Keeping, after.module).unsaved.tolist() == [1, 2, 2**40]
    assert cast(Keeping, after.module).saved.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("former", [True, False])
def test_a_checkpoint_without_them_is_read(former: bool) -> None:
    """As earlier versions wrote it."""
    state = save_state(trained())
    if former:
        progress = decode_state(state.progress)
        del progress[UNSAVED]
        state = replace(state, progress=encode_state(progress))
    after = trained()
    load_state(after, state)
    assert cast(Keeping, after.module).unsaved.tolist() == [0, 0, 0]
