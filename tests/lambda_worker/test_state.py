"""State comes back bit for bit from bytes that hold no pickle."""

from __future__ import annotations

import math
import pickle
import struct
from collections import Counter, OrderedDict, deque
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gradmux.lambda_worker.state import StateError, decode_state, encode_state, is_state


def alike(one: Any, other: Any) -> bool:
    """Equal to the bit, NaN in tensors and signed zeros included, and of one type."""
    if isinstance(one, torch.Tensor):
        same = isinstance(other, torch.Tensor) and (one.dtype, one.shape) == (other.dtype, other.shape)
        return bool(same and one.reshape(-1).view(torch.uint8).equal(other.reshape(-1).view(torch.uint8)))
    if isinstance(one, float) and math.isnan(one):
        return type(other) is float and math.isnan(other)  # JSON's "nan" has no sign
    if isinstance(one, float):
        return type(other) is float and struct.pack("<d", one) == struct.pack("<d", other)
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return type(one) is type(other) and all(
            k == n and type(k) is type(n) and alike(v, w) for (k, v), (n, w) in pairs
        )
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


TENSORS = [
    torch.tensor([1.0, float("nan"), float("-inf"), -0.0]),
    torch.arange(6.0).reshape(2, 3).t(),
    torch.tensor(3.5, dtype=torch.bfloat16),
    torch.tensor([2**60, -1]),
    torch.tensor([True, False]),
    torch.tensor([1 + 2j, float("nan") - 1j], dtype=torch.complex128),
    torch.empty(0, 4, dtype=torch.float16),
    nn.Parameter(torch.ones(2)),
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from(TENSORS)
)
KEYS = st.text(max_size=3) | st.integers(0, 3) | st.sampled_from(["$tensor", "$", ""])


@given(
    st.dictionaries(
        st.text(max_size=3) | st.just("$dict"),
        st.recursive(
            LEAVES,
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.lists(inner, max_size=3).map(tuple)
                | st.dictionaries(KEYS, inner, max_size=3)
            ),
            max_leaves=12,
        ),
        max_size=4,
    )
)
def test_whatever_is_nested_comes_back(state: dict[str, Any]) -> None:
    raw = encode_state(state)
    assert is_state(raw)
    assert alike(state, decode_state(raw))
    assert encode_state(decode_state(raw)) == raw


def test_the_containers_of_schedulers() -> None:
    state = {"c": Counter([5, 5, 9]), "d": deque([1, 2]), "s": {3}, "f": frozenset({4}), "z": 1 + 2j}
    found = decode_state(encode_state(state))
    assert found == state
    assert found["c"][7] == 0, "MultiStepLR asks for steps that are no milestones"
    assert decode_state(encode_state({"o": OrderedDict(a=1)})) == {"o": {"a": 1}}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), r"state.a.0 is object, which cannot be saved"),
        (lambda: 1, "is function"),
        (torch.float32, "is dtype"),
        (torch.eye(2).to_sparse(), "layout torch.sparse_coo"),
    ],
)
def test_what_cannot_be_saved_is_told_by_its_place(value: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        encode_state({"a": [value]})


@pytest.mark.parametrize("raw", [b"", b"junk" * 9, pickle.dumps({"a": 1}), encode_state({"a": torch.ones(3)})[:-2]])
def test_bytes_that_are_no_state(raw: bytes) -> None:
    with pytest.raises(StateError, match="not a saved state"):
        decode_state(raw)
    assert not is_state(raw[:20])
