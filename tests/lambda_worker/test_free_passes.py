"""Free passes: a worker takes its share in as few forwards as its memory allows, and the sums stay the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gradmux.lambda_worker.gradient import Batch, coded_sum
from gradmux.lambda_worker.losses import loss_from
from gradmux.lambda_worker.messages import Term
from gradmux.lambda_worker.models import Model, ModelSpec, encode_spec, parse_spec
from gradmux.lambda_worker.tasks import edges_within, merged


@given(st.integers(0, 50), st.integers(1, 200), st.integers(1, 40), st.none() | st.integers(1, 300))
def test_parts_are_as_few_as_fit(first: int, width: int, pass_rows: int, most_rows: int | None) -> None:
    edges = edges_within(first, first + width, pass_rows, most_rows)
    assert (edges[0], edges[-1]) == (first, first + width)
    sizes = [hi - lo for lo, hi in pairwise(edges)]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    if most_rows is None:
        assert len(sizes) == 1
    else:
        most = max(1, most_rows // pass_rows)
        assert max(sizes) <= most
        assert len(sizes) == -(-width // most), "no more than needed"


def test_neighbours_of_one_coefficient_are_one() -> None:
    terms = [Term(0, 2, 1.0), Term(2, 5, 1.0), Term(5, 6, 2.0), Term(8, 9, 2.0), Term(9, 11, 2.0)]
    assert merged(terms) == [Term(0, 5, 1.0), Term(5, 6, 2.0), Term(8, 11, 2.0)]
    assert merged([]) == []


class Counting(nn.Module):
    """Notes how many rows its forwards have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        return self.layer(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("most_rows", "forwards"), [(None, [12]), (12, [12]), (11, [4, 8])])
def test_weighted_chunks_are_one_forward_where_they_fit(most_rows: int | None, forwards: list[int]) -> None:
    model = Model(Counting(), loss_from("mse_loss", "mse_loss"), most_rows=most_rows)
    torch.manual_seed(0)
    batches = [Batch(torch.randn(n, 3), torch.randn(n, 2), factor) for n, factor in ((4, 0.5), (8, -2.0))]
    found = coded_sum(model, batches)
    assert model.module.seen == forwards
    plain = coded_sum(Model(model.module, loss_from("mse_loss", "mse_loss"), most_rows=1), batches)
    torch.testing.assert_close(found.gradient, plain.gradient)
    torch.testing.assert_close(found.sums, plain.sums)


def test_a_spec_carries_it() -> None:
    assert parse_spec(encode_spec(ModelSpec("m:f", most_rows=7))).most_rows == 7
    assert parse_spec(encode_spec(ModelSpec("m:f"))).most_rows is None
