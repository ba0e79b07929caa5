"""Rows by structure: what the names of arrays make of them, and what weights of rows do to a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradmux.lambda_worker.gradient import Batch, coded_sum
from gradmux.lambda_worker.losses import LossError, loss_from
from gradmux.lambda_worker.models import Model
from gradmux.lambda_worker.structure import (
    Weighted,
    bare,
    forward,
    gathered,
    joined,
    leaves,
    loss_of,
    mapped,
    named,
    row_count,
    rows_of,
)

A, B = torch.arange(6.0).reshape(3, 2), torch.ones(3)


@pytest.mark.parametrize("values", [A, (A, B), {"ids": A, "mask": B}, (A,), {"0x": A}])
def test_structures_come_back_from_the_names_of_their_arrays(values: Any) -> None:
    again: Any = gathered(named(values, "x"), "x")
    assert type(again) is type(values)
    for one, other in zip(leaves(again), leaves(values), strict=True):
        assert one is other
    assert gathered(named(values, "x"), "y") is None
    assert row_count(again) == 3


def test_how_models_and_losses_are_called() -> None:
    def told(*given: Any, **more: Any) -> Any:
        return given, more

    assert forward(told, A) == ((A,), {})
    assert forward(told, (A, B)) == ((A, B), {})
    assert forward(told, {"a": A, "b": B}) == ((), {"a": A, "b": B})
    assert loss_of(told, 1, B, reduction="sum") == ((1, B), {"reduction": "sum"})
    assert loss_of(told, 1, (A, B)) == ((1, A, B), {})
    assert loss_of(told, 1, {"a": A}) == ((1,), {"a": A})


def test_tuples_of_many_are_in_the_order_of_their_numbers() -> None:
    found: Any = gathered({f"x.{place}": torch.tensor([place]) for place in range(11, -1, -1)}, "x")
    assert [int(each) for each in found] == list(range(12))


@pytest.mark.parametrize("target", [B, (B, A), {"b": B}])
def test_weights_go_with_their_rows(target: Any) -> None:
    inputs, found = rows_of({**named(A, "x"), **named(target, "y"), "w": 2 * B})
    assert inputs is A
    assert isinstance(found, Weighted)
    twice = joined([found, found])
    assert row_count(twice) == 6
    assert isinstance(twice, Weighted)
    assert torch.equal(twice.weights, torch.full((6,), 2.0))
    assert [len(each) for each in leaves(mapped(lambda each: each[:1], twice))] == [1] * len(leaves(twice))
    assert type(bare(twice)) is type(target)


# --- losses of weighted rows ---------------------------------------------------------------------------------------

CLASSES = torch.tensor([0, 2, 1, -100])
SCORES = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
WEIGHTS = torch.tensor([2.0, 0.0, 0.5, 3.0])


def own(output: Tensor, target: Tensor) -> Tensor:
    return (output.sum(1) - target).square()


@pytest.mark.parametrize(
    ("source", "value", "counts"),
    [
        ("cross_entropy", lambda: nn.functional.cross_entropy(SCORES, CLASSES, reduction="none"), [1, 1, 1, 0]),
        (nn.CrossEntropyLoss(), lambda: nn.functional.cross_entropy(SCORES, CLASSES, reduction="none"), [1, 1, 1, 0]),
        (own, lambda: own(SCORES, CLASSES), [1, 1, 1, 1]),
    ],
)
def test_a_weight_multiplies_the_loss_of_its_row_and_the_count(
    source: Any, value: Callable[[], Tensor], counts: list[float]
) -> None:
    loss = loss_from(source, "it")
    found = loss.summed(SCORES, Weighted(CLASSES, WEIGHTS))
    torch.testing.assert_close(found.total, (value() * WEIGHTS).sum())
    assert found.count == pytest.approx(float(torch.tensor(counts, dtype=torch.float32) @ WEIGHTS))
    ones = loss.summed(SCORES, Weighted(CLASSES, torch.ones(4)))
    plain = loss.summed(SCORES, CLASSES)
    torch.testing.assert_close(ones.total, plain.total)
    assert ones.count == plain.count


@pytest.mark.parametrize("source", [lambda o, t: own(o, t).sum(), lambda o, t: (own(o, t).sum(), 4)])
def test_a_loss_without_a_value_for_each_row_takes_no_weights(source: Any) -> None:
    with pytest.raises(LossError, match="no value for each row"):
        loss_from(source, "it").summed(SCORES, Weighted(CLASSES, WEIGHTS))


@pytest.mark.parametrize("coefficient", [1.0, 2.5])
def test_a_weight_of_two_is_the_row_twice(coefficient: float) -> None:
    torch.manual_seed(0)
    model = Model(nn.Linear(2, 3), loss_from("cross_entropy", "cross_entropy"))
    x, y = torch.randn(5, 2), torch.tensor([0, 1, 2, 0, 1])
    weights = torch.tensor([2.0, 1.0, 0.0, 1.0, 1.0])
    twice = torch.tensor([0, 0, 1, 3, 4])
    weighted = coded_sum(
        model, [Batch(x, Weighted(y, weights), coefficient), Batch(x[:1], Weighted(y[:1], weights[:1]))]
    )
    plain = coded_sum(model, [Batch(x[twice], y[twice], coefficient), Batch(x[[0, 0]], y[[0, 0]])])
    torch.testing.assert_close(weighted.gradient, plain.gradient)
    torch.testing.assert_close(weighted.sums[[0, 4]], plain.sums[[0, 4]])
