"""Models of other libraries, built from a configuration without a download; skipped, with the reason, where absent.

Read next: `here.py`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from scripts.exactness.cases import IMAGES, NEXT, TOKENS, Y
from scripts.exactness.here import Case

SMALL = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 64}


def by_token(output: Any, target: Tensor) -> tuple[Tensor, float]:
    """Of a causal model's logits, (N, T, V)."""
    logits = output.logits
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum"), float(target.numel())


def by_class(output: Any, target: Tensor) -> Tensor:
    return F.cross_entropy(output.logits, target, reduction="none")


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    )


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(vocab_size=50, max_position_embeddings=16, **SMALL))


def bert() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=16, num_labels=5, **SMALL))


def distilbert() -> Any:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=50, max_position_embeddings=16, dim=32, hidden_dim=64, n_layers=2, n_heads=2, num_labels=5
    )
    return DistilBertForSequenceClassification(config)


def vit() -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, num_channels=3, num_labels=5, **SMALL))


def library_cases() -> tuple[list[Case], list[tuple[str, str]]]:
    """The cases that can be made here; and the names of the others, with the reason."""
    made: list[tuple[str, Callable[[], Any], Any, Any, Any]] = [
        ("GPT2LMHeadModel", gpt2, TOKENS, NEXT, by_token),
        ("LlamaForCausalLM", llama, TOKENS, NEXT, by_token),
        ("BertForSequenceClassification", bert, TOKENS, Y, by_class),
        ("DistilBertForSequenceClassification", distilbert, TOKENS, Y, by_class),
        ("ViTForImageClassification", vit, IMAGES, Y, by_class),
    ]
    if importlib.util.find_spec("transformers") is None:
        return [], [(name, "transformers is not installed") for name, *_ in made]
    momentum = {"name": "SGD", "lr": 0.05, "momentum": 0.9}
    return [Case(name, "transformers", factory, x, y, loss, momentum) for name, factory, x, y, loss in made], []
