"""How much memory a forward holds for its backward: by this a worker's share is cut into as few passes as fit.

What autograd keeps is counted, storage by storage, at two sizes; the difference belongs to rows. Read next:
`orchestrator/training/memory.py`, which knows what a worker has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradmux.lambda_worker.models import Model
from gradmux.lambda_worker.structure import forward, leaves
from gradmux.orchestrator.training.trial.playing import RowsOf, all_random, buffers_kept, tensors_in


def bytes_per_row(model: Model, rows: RowsOf, few: int) -> float:
    """Bytes that each further row of a pass holds until its backward; played with `few` rows and twice as many."""
    one, other = rows.blocks(2, few)
    return max(0.0, (_held(model, rows, [*one, *other]) - _held(model, rows, one)) / few)


def _held(model: Model, rows: RowsOf, ids: list[int]) -> int:
    """Bytes of all that is alive between forward and backward, but for what was there before."""
    inputs, target = rows.read(ids)
    ours = {each.untyped_storage().data_ptr() for each in (*model.parameters, *model.module.buffers())}
    found: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in ours:
                found[storage.data_ptr()] = storage.nbytes()
        return tensor

    def same(tensor: Any) -> Any:
        return tensor

    with buffers_kept(model.module), all_random(0), torch.autograd.graph.saved_tensors_hooks(note, same):
        output = forward(model.module, inputs)
        total = model.loss.summed(output, target).total
        for tensor in (*leaves(inputs), *leaves(target), *tensors_in(output)):
            note(tensor)
    del total
    return sum(found.values())
