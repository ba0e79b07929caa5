"""Specs, flat vectors and losses."""

from __future__ import annotations

import cloudpickle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.contract import ContractError
from gradmux.lambda_worker.losses import loss_from
from gradmux.lambda_worker.models import Model, ModelError, ModelSpec, build, encode_spec, parse_spec
from tests.lambda_worker.workbench import HERE, initial, spec

OUTPUT = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([0, 1, 2, 0, 1, 2])


def test_specs_come_back_and_equal_ones_are_equal_bytes() -> None:
    one = ModelSpec("a:b", {"x": 1, "y": [2]}, b"\x80pickle", "float64")
    other = ModelSpec("a:b", {"y": [2], "x": 1}, b"\x80pickle", "float64")
    assert parse_spec(encode_spec(one)) == one
    assert encode_spec(one) == encode_spec(other)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'{"factory": "a:b"}',
        b'{"factory": 1, "args": {}, "loss": "l", "dtype": "float32"}',
        b'{"factory": "a:b", "args": [], "loss": "l", "dtype": "float32"}',
        b'{"factory": "a:b", "args": {}, "loss": "l", "dtype": "float16"}',
        b'{"factory": {"cloudpickle": "?"}, "args": {}, "loss": "l", "dtype": "float32"}',
        b'{"factory": "a:b", "args": {}, "loss": "l", "dtype": "float32", "extra": 1}',
    ],
)
def test_malformed_specs(raw: bytes) -> None:
    with pytest.raises(ContractError):
        parse_spec(raw)


def test_a_factory_defined_in_a_function_travels() -> None:
    def factory(width: int) -> nn.Module:
        return nn.Linear(width, width)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().sum(1)

    made = build(parse_spec(encode_spec(ModelSpec(cloudpickle.dumps(factory), {"width": 3}, cloudpickle.dumps(loss)))))
    assert flat.parameter_count(made.module) == 12
    assert made.loss.summed(torch.ones(2, 3), torch.zeros(2, 3)).total == 6.0


def test_the_specs_seed_decides_what_a_factory_draws_and_nobody_elses_numbers_move() -> None:
    """Integer buffers travel in no snapshot, so both sides must draw the same ones."""
    torch.manual_seed(4)
    expected = torch.rand(1)
    torch.manual_seed(4)
    masks = [dict(build(spec("masked", seed=seed)).module.named_buffers())["mask"] for seed in (1, 1, 2)]
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert torch.equal(initial(seed=5), initial(seed=5))


def test_factories_that_do_not_work_say_so() -> None:
    with pytest.raises(ModelError, match="returned str"):
        build(spec("not_a_module"))
    with pytest.raises(RuntimeError, match="the factory is broken"):
        build(spec("broken"))
    with pytest.raises(ModelError, match="expected module:function"):
        build(ModelSpec("nowhere"))
    with pytest.raises(ModelError, match="no parameter"):
        Model(nn.Flatten(), loss_from("mse_loss", "mse_loss"))


@pytest.mark.parametrize("factory", ["mlp", "with_norm", "tied", "non_contiguous", "drifting", "partly_frozen"])
def test_a_snapshot_restores_any_model(factory: str) -> None:
    weights = initial(factory, seed=1)
    made = build(spec(factory))
    made.load(flat.from_bytes(flat.to_bytes(weights), "float32"))
    assert torch.equal(flat.snapshot(made.module), weights)
    assert weights.numel() == flat.snapshot_size(made.module)
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
    assert torch.equal(made.module(x), build(spec(factory, seed=1)).module(x))


def test_layout_is_kept_and_tied_weights_stay_tied() -> None:
    made = build(spec("non_contiguous")).module
    flat.load_snapshot(made, torch.arange(18.0))
    (weight,) = made.parameters()
    assert not weight.is_contiguous()
    assert weight.reshape(-1).tolist() == list(range(18))
    tied = build(spec("tied")).module
    flat.load_snapshot(tied, torch.arange(18.0))
    assert tied.alias is tied.encoder.weight
    assert flat.snapshot_size(tied) == 18


def test_a_snapshot_of_another_model_is_refused_and_nothing_is_loaded() -> None:
    made = build(spec())
    with pytest.raises(ValueError, match="has 7 elements, the model takes 53"):
        made.load(torch.zeros(7))
    with pytest.raises(ValueError, match="no whole number"):
        flat.from_bytes(b"123", "float32")
    with pytest.raises(TypeError, match="one dtype"):
        flat.flatten([torch.zeros(1), torch.zeros(1).double()])


@given(st.lists(st.lists(st.integers(1, 3), max_size=3), max_size=4))
def test_unflatten_inverts_flatten(shapes: list[list[int]]) -> None:
    tensors = [torch.randn(shape) for shape in shapes]
    for one, other in zip(flat.unflatten(flat.flatten(tensors), tensors), tensors, strict=True):
        assert torch.equal(one, other)


def test_import_paths_may_be_dotted_attributes() -> None:
    made = build(ModelSpec("torch.nn:modules.linear.Linear", {"in_features": 2, "out_features": 2}, HERE + "summed"))
    assert isinstance(made.module, nn.Linear)
