"""What the zygote does once, so that 256 workers do not each do it: import the framework and run it a little.

Runs at one thread from the first operation on: a parent that has used a thread pool makes its forked children hang.
Used by `zygote.py`.
"""

from __future__ import annotations

import importlib
import sys


def warm_up(preload: tuple[str, ...]) -> None:
    """Imports modules and calls functions (`module:function`); where torch is there, trains a small CNN one step."""
    for name in preload:
        module, _, function = name.partition(":")
        loaded = importlib.import_module(module)
        single_thread()
        if function:
            getattr(loaded, function)()
    if "torch" in sys.modules:
        train_a_little()


def single_thread() -> None:
    """One torch thread, until the handler takes as many as its memory pays for; needed again in every child."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def train_a_little() -> None:
    """One step of a model with the usual layers: loads kernels, allocates workspaces, builds the autograd engine."""
    import torch
    from torch import nn

    layers = [
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 13 * 13, 10),
    ]
    model = nn.Sequential(*layers, nn.Dropout(0.1))
    images_BCHW, labels_B = torch.zeros(4, 1, 28, 28), torch.zeros(4, dtype=torch.long)
    loss = nn.functional.cross_entropy(model(images_BCHW), labels_B)
    torch.autograd.backward(loss)
    torch.autograd.grad(model(images_BCHW).square().sum(), list(model.parameters()))
