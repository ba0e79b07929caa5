"""The gradient of a loss, one parameter's part at a time: what is needed of it is taken, and it is let go.

For large models: all parts at once are a second model. The numbers are those of `torch.autograd.grad`, to the last bit.
Knows no model. Used by the trial of models, here and in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["Take", "each_partial"]

Take = Callable[[int, Tensor], None]
"""Gets the index of a parameter and its part, dense, which it must not keep."""


def each_partial(loss: Tensor, parameters: Sequence[Tensor], take: Take) -> None:
    """Calls `take` once for each of the parameters that has a part in the loss, as soon as its part is complete."""
    hooks = [
        parameter.register_hook(_taking(index, take))  # type: ignore[no-untyped-call]
        for index, parameter in enumerate(parameters)
    ]
    try:
        torch.autograd.grad(loss, list(parameters), allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()


def _taking(index: int, take: Take) -> Callable[[Tensor], Tensor]:
    def taken(part: Tensor) -> Tensor:
        with torch.no_grad():
            take(index, part.to_dense() if part.is_sparse else part)
        if part.is_sparse:
            return torch.zeros(part.shape, dtype=part.dtype, layout=part.layout)
        return part.new_zeros(()).expand(part.shape)  # in the part's place, without its memory

    return taken
