"""Models and losses of our own, by kind: what is free, what has fixed passes, what is refused.

Read next: `here.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scripts.exactness.here import Case

GENERATOR = np.random.default_rng(11)
ROWS = 640
X = GENERATOR.standard_normal((ROWS, 20)).astype("f4")
Y = GENERATOR.integers(0, 5, ROWS)
IMAGES = GENERATOR.standard_normal((ROWS, 3, 8, 8)).astype("f4")
TOKENS = GENERATOR.integers(0, 50, (ROWS, 16))
NEXT = np.roll(TOKENS, -1, axis=1)
NUMBERS = GENERATOR.standard_normal((ROWS, 3)).astype("f4")
BITS = GENERATOR.integers(0, 2, (ROWS, 3)).astype("f4")
IGNORED = np.where(GENERATOR.random((ROWS, 16)) < 0.7, NEXT, -100)


def sequence(*layers: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A factory of a Sequential: layers are made when it is called, under its seed."""
    return lambda: nn.Sequential(*(layer() for layer in layers))


def linear(inputs: int, outputs: int) -> Callable[[], nn.Module]:
    return partial(nn.Linear, inputs, outputs)


def on_rows(*between: Callable[[], nn.Module], width: int = 32) -> Callable[[], nn.Module]:
    """A classifier of X with layers of this width in its middle."""
    return sequence(linear(20, 32), *between, nn.ReLU, linear(width, 5))


def on_images(*between: Callable[[], nn.Module], channels: int = 8) -> Callable[[], nn.Module]:
    return sequence(
        partial(nn.Conv2d, 3, 8, 3),
        *between,
        nn.ReLU,
        partial(nn.AdaptiveAvgPool2d, 1),
        nn.Flatten,
        linear(channels, 5),
    )


class Recurrent(nn.Module):
    """Any of torch's recurrent layers over tokens."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(50, 12), kind(12, 10, batch_first=True, **options)
        self.head = nn.Linear(10 * (1 + bool(options.get("bidirectional"))), 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(tokens))[0][:, -1])  # type: ignore[no-any-return]


class Attending(nn.Module):
    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embedding, self.layer, self.head = nn.Embedding(50, 16), layer(), nn.Linear(16, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(tokens)).mean(1))  # type: ignore[no-any-return]


class SelfAttention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True, **options)

    def forward(self, h: Tensor) -> Tensor:
        return self.attention(h, h, h, need_weights=False)[0]  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """A small GPT: token and position embeddings, two causal blocks, tied head."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.positions, self.drop = nn.Embedding(50, 32), nn.Embedding(16, 32), nn.Dropout(dropout)
        block = partial(nn.TransformerEncoderLayer, 32, 4, 64, dropout, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.ModuleList([block(), block()])
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        h = self.drop(self.tokens(tokens) + self.positions(torch.arange(length)))
        for block in self.blocks:
            h = block(h, src_mask=mask, is_causal=True)
        return self.head(self.norm(h)).transpose(1, 2)  # type: ignore[no-any-return]


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
        )
        self.one, self.two = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.short = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.one(self.first(x)))
        return torch.relu(self.two(self.second(h)) + self.short(x))


def resnet18(width: int = 16) -> nn.Module:
    """ResNet-18's layout, of our own, narrower: four stages of two blocks."""
    stages: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage in range(4):
        outputs = width * 2**stage
        stages += [Residual(inputs, outputs, 1 if stage == 0 else 2), Residual(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 5))


class Diffusion(nn.Module):
    """Learns to tell the noise that it adds; the noise and the times are drawn in the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(21, 64), nn.SiLU(), nn.Linear(64, 20))

    def forward(self, x: Tensor) -> Tensor:
        noise, time = torch.randn_like(x), torch.rand(len(x), 1, dtype=x.dtype)
        mixed = (1 - time).sqrt() * x + time.sqrt() * noise
        return (self.net(torch.cat((mixed, time), 1)) - noise).square()  # type: ignore[no-any-return]


class Variational(nn.Module):
    """A VAE: what it gives is its reconstruction and its own two figures."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(20, 8), nn.Linear(4, 20)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log = self.encode(x).chunk(2, 1)
        return self.decode(mean + torch.randn_like(mean) * (0.5 * log).exp()), mean, log


class Experts(nn.Module):
    """Two experts, and a balance term over the rows of a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(20, 2), nn.ModuleList(nn.Linear(20, 5) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate = self.gate(x).softmax(1)
        balance = gate.mean(0).square().sum()
        out = torch.stack([expert(x) for expert in self.experts], 1)
        return (gate[:, :, None] * out).sum(1), balance


class Pair(nn.Module):
    """A generator and its critic in one module, as a GAN has them."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = nn.Linear(4, 20), nn.Linear(20, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.critic(x), self.critic(self.generator(torch.randn(len(x), 4, dtype=x.dtype)))


class Gate(nn.Module):
    """Counts its passes to warm a gate up."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(20, 5), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) * min(1.0, self.calls / 100)  # type: ignore[no-any-return]


class Entropy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * (1.0 + os.urandom(1)[0] / 255))  # type: ignore[no-any-return]


class Codebook(nn.Module):
    """Vector quantisation whose codebook is a moving average, in buffers."""

    book: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(20, 8), nn.Linear(8, 5)
        self.register_buffer("book", torch.randn(6, 8))

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x)
        nearest = torch.cdist(h.detach(), self.book).argmin(1)
        out: Tensor = self.head(h + (self.book[nearest] - h).detach())
        if self.training:
            seen = F.one_hot(nearest, 6).to(x.dtype)
            means = (seen.T @ h.detach()) / seen.sum(0).clamp(min=1.0)[:, None]
            self.book.lerp_(torch.where(seen.sum(0)[:, None] > 0, means, self.book), 0.1)
        return out


def by_row(output: Tensor, _: Any) -> Tensor:
    return output.mean(1)


def elbo(output: Any, target: Tensor) -> Tensor:
    made, mean, log = output
    return (made - target).square().sum(1) - 0.5 * (1 + log - mean.square() - log.exp()).sum(1)


def balanced(output: Any, target: Tensor) -> Tensor:
    scores, balance = output
    return F.cross_entropy(scores, target, reduction="none") + 0.1 * balance


def adversarial(output: Any, _: Tensor) -> Tensor:
    """What a GAN needs: two losses with two signs, of two optimizers. As one mean it is refused."""
    real, fake = output
    return F.softplus(-real).mean() + F.softplus(fake).mean()


def mean_scalar(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target)


def sum_and_count(output: Tensor, target: Tensor) -> tuple[Tensor, float]:
    return F.cross_entropy(output, target, reduction="sum"), float(len(target))


def spread(output: Tensor, target: Tensor) -> Tensor:
    """Normalised by something of the batch."""
    return (output - target).square().sum(1) / (target.var() + 1e-3)


def _norms() -> list[Case]:
    rows = {
        "BatchNorm1d": partial(nn.BatchNorm1d, 32),
        "BatchNorm1d, no running statistics": partial(nn.BatchNorm1d, 32, track_running_stats=False),
        "BatchNorm1d, cumulative momentum": partial(nn.BatchNorm1d, 32, momentum=None),
        "LayerNorm": partial(nn.LayerNorm, 32),
        "RMSNorm": partial(nn.RMSNorm, 32),
        "GroupNorm": partial(nn.GroupNorm, 4, 32),
    }
    images = {
        "BatchNorm2d": partial(nn.BatchNorm2d, 8),
        "InstanceNorm2d": partial(nn.InstanceNorm2d, 8, affine=True),
        "InstanceNorm2d, running statistics": partial(nn.InstanceNorm2d, 8, track_running_stats=True),
        "LocalResponseNorm": partial(nn.LocalResponseNorm, 3),
    }
    made = [Case(name, "norm", on_rows(layer), X, Y) for name, layer in rows.items()]
    made += [Case(name, "norm", on_images(layer), IMAGES, Y) for name, layer in images.items()]
    running = {"norms": "running"}
    made.append(Case("BatchNorm1d, norms = running", "norm", on_rows(rows["BatchNorm1d"]), X, Y, training=running))
    return made


def _recurrent() -> list[Case]:
    kinds: dict[str, Callable[[], nn.Module]] = {
        "LSTM": partial(Recurrent, nn.LSTM),
        "LSTM, two layers, dropout": partial(Recurrent, nn.LSTM, num_layers=2, dropout=0.2),
        "LSTM, bidirectional": partial(Recurrent, nn.LSTM, bidirectional=True),
        "GRU": partial(Recurrent, nn.GRU),
        "RNN": partial(Recurrent, nn.RNN),
    }
    return [Case(name, "recurrent", factory, TOKENS, Y) for name, factory in kinds.items()]


def _attention() -> list[Case]:
    encoder = partial(nn.TransformerEncoderLayer, 16, 2, 32, batch_first=True)
    kinds: dict[str, Callable[[], nn.Module]] = {
        "MultiheadAttention": partial(Attending, SelfAttention),
        "MultiheadAttention, dropout": partial(Attending, partial(SelfAttention, dropout=0.1)),
        "TransformerEncoderLayer": partial(Attending, partial(encoder, dropout=0.0)),
        "TransformerEncoderLayer, dropout": partial(Attending, encoder),
    }
    made = [Case(name, "attention", factory, TOKENS, Y) for name, factory in kinds.items()]
    momentum = {"name": "SGD", "lr": 0.05, "momentum": 0.9}
    made.append(Case("GPT-like, tied head", "attention", Gpt, TOKENS, NEXT, optimizer=momentum))
    made.append(Case("GPT-like, dropout", "attention", partial(Gpt, 0.1), TOKENS, NEXT, optimizer=momentum))
    made.append(Case("GPT-like, ignored targets", "attention", Gpt, TOKENS, IGNORED, optimizer=momentum))
    return made


def _random() -> list[Case]:
    rows = {
        "MLP": (),
        "Dropout": (partial(nn.Dropout, 0.5),),
        "AlphaDropout": (partial(nn.AlphaDropout, 0.3),),
        "RReLU": (nn.RReLU,),
    }
    made = [Case(name, "plain and random", on_rows(*layers), X, Y) for name, layers in rows.items()]
    made.append(Case("Dropout2d", "plain and random", on_images(partial(nn.Dropout2d, 0.3)), IMAGES, Y))
    made.append(Case("CNN", "plain and random", on_images(), IMAGES, Y))
    made.append(Case("ResNet-18 (own, narrow)", "plain and random", resnet18, IMAGES, Y))
    made.append(Case("Diffusion", "plain and random", Diffusion, X, NUMBERS, by_row))
    made.append(Case("VAE", "plain and random", Variational, X, X, elbo))
    return made


def _embeddings() -> list[Case]:
    def flat(**options: Any) -> Callable[[], nn.Module]:
        return sequence(partial(nn.Embedding, 50, 8, **options), nn.Flatten, linear(128, 5))

    bag = sequence(partial(nn.EmbeddingBag, 50, 8), linear(8, 5))
    return [
        Case("Embedding", "embedding", flat(), TOKENS, Y),
        Case("Embedding, padding_idx", "embedding", flat(padding_idx=0), TOKENS, Y),
        Case("Embedding, sparse", "embedding", flat(sparse=True), TOKENS, Y),
        Case("Embedding, scale_grad_by_freq", "embedding", flat(scale_grad_by_freq=True), TOKENS, Y),
        Case("Embedding, max_norm", "embedding", flat(max_norm=0.5), TOKENS, Y),
        Case("EmbeddingBag", "embedding", bag, TOKENS, Y),
    ]


def _losses() -> list[Case]:
    numbers, plain = sequence(linear(20, 16), nn.Tanh, linear(16, 3)), on_rows()
    weights = torch.tensor([0.1, 1.0, 1.0, 1.0, 5.0])
    pos = torch.tensor([1.0, 2.0, 3.0])
    return [
        Case("mse_loss", "loss", numbers, X, NUMBERS, "mse_loss"),
        Case("smooth_l1_loss", "loss", numbers, X, NUMBERS, "smooth_l1_loss"),
        Case("BCEWithLogitsLoss, pos_weight", "loss", numbers, X, BITS, nn.BCEWithLogitsLoss(pos_weight=pos)),
        Case("CrossEntropyLoss, weight", "loss", plain, X, Y, nn.CrossEntropyLoss(weight=weights)),
        Case("CrossEntropyLoss, label_smoothing", "loss", plain, X, Y, nn.CrossEntropyLoss(label_smoothing=0.1)),
        Case("(sum, count)", "loss", plain, X, Y, sum_and_count),
        Case("normalised by the batch's variance", "loss", numbers, X, NUMBERS, spread),
        Case("a mean of one's own", "loss", plain, X, Y, mean_scalar),
        Case("balance of experts", "loss", Experts, X, Y, balanced),
        Case("GAN-like pair", "loss", Pair, X, Y, adversarial),
    ]


def _state() -> list[Case]:
    lazy = {"name": "lag-wk"}
    return [
        Case("codebook in buffers", "state", Codebook, X, Y),
        Case("counts its passes", "state", Gate, X, Y),
        Case("os.urandom in a forward", "state", Entropy, X, Y),
        Case(
            "dropout under lag-wk",
            "state",
            on_rows(nn.Dropout),
            X[:64],
            Y[:64],
            optimizer={"name": "SGD", "lr": 0.05},
            scheme=lazy,
        ),
    ]


def own_cases() -> list[Case]:
    """All of them."""
    return [*_random(), *_norms(), *_recurrent(), *_attention(), *_embeddings(), *_losses(), *_state()]
