"""Results as bytes: exact round trips, damage noticed, float16 scaled, non-finite numbers refused."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradmux.lambda_worker.buffers import read_elements, result_head
from gradmux.lambda_worker.contract import (
    ContractError,
    NonFiniteResult,
    VersionError,
    decode_result,
    encode_result,
    gradient_offset,
    result_size,
)

NO_SUMS = np.empty(0)
doubles = st.floats(allow_nan=False, allow_infinity=False)
singles = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(hnp.arrays("f4", st.integers(0, 20), elements=singles), hnp.arrays("f8", st.integers(0, 9), elements=doubles))
def test_float32_and_sums_come_back_exactly(gradient: np.ndarray, sums: np.ndarray) -> None:
    raw = encode_result(gradient, sums)
    assert len(raw) == result_size(len(gradient), len(sums), "float32")
    decoded, totals, _ = decode_result(raw)
    assert decoded.dtype == np.float32
    assert np.array_equal(decoded, gradient)
    assert np.array_equal(totals, sums)
    assert result_head(raw)[:4] == (tuple(sums), gradient_offset(len(sums)), 1.0, 0)


@given(hnp.arrays("f8", st.integers(0, 20), elements=doubles))
def test_float64_comes_back_exactly_from_a_tensor(gradient: np.ndarray) -> None:
    decoded, _, _ = decode_result(encode_result(torch.from_numpy(gradient), torch.zeros(2).double(), "float64"))
    assert decoded.dtype == np.float64
    assert np.array_equal(decoded, gradient)


in_range = singles.filter(lambda value: abs(value) < 3.4e38)


@given(hnp.arrays("f4", st.integers(1, 20), elements=in_range))
def test_float16_keeps_eleven_bits_of_the_largest_whatever_its_magnitude(gradient: np.ndarray) -> None:
    decoded, _, _ = decode_result(encode_result(gradient, NO_SUMS, "float16"))
    assert decoded.dtype == np.float32
    largest = float(np.abs(gradient).max())
    error = np.abs(decoded.astype("f8") - gradient.astype("f8")).max()
    assert error <= largest * 2.0**-11 + 2.0**-140  # below that magnitude, the exponent of the scale is at its end


def test_float16_scale_is_a_power_of_two_and_small_values_survive() -> None:
    gradient = np.array([3e-9, -1e-9, 0.0], dtype="f4")  # all zero in plain float16
    raw = encode_result(gradient, NO_SUMS, "float16")
    decoded, _, _ = decode_result(raw)
    _, offset, scale, *_ = result_head(raw)
    assert math.frexp(scale)[0] == 0.5
    assert np.abs(decoded - gradient).max() <= 3e-9 * 2.0**-11
    assert np.array_equal(read_elements(raw[offset + 2 : offset + 6], "float16", scale), decoded[1:])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_refused(dtype: str, bad: float) -> None:
    with pytest.raises(NonFiniteResult):
        encode_result(np.array([1.0, bad, 2.0]), NO_SUMS, dtype)
    with pytest.raises(NonFiniteResult):
        encode_result(np.ones(2), np.array([bad]), dtype)


@pytest.mark.parametrize(("dtype", "value"), [("float32", 1e300), ("float32", -3.5e38), ("float16", 3.4028e38)])
def test_what_overflows_on_the_wire_is_refused(dtype: str, value: float) -> None:
    with pytest.raises(NonFiniteResult):
        encode_result(np.array([value]), NO_SUMS, dtype)


@given(st.data())
def test_any_flipped_bit_is_noticed(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64", "float16"]))
    raw = bytearray(encode_result(np.linspace(-1, 1, 9), np.arange(5.0), dtype))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ContractError):
        decode_result(raw)


@given(st.data())
def test_truncation_and_excess_are_noticed(data: st.DataObject) -> None:
    raw = encode_result(np.linspace(-1, 1, 9), np.arange(5.0))
    with pytest.raises(ContractError):
        decode_result(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(ContractError):
        decode_result(raw + data.draw(st.binary(min_size=1, max_size=9)))


@given(st.binary(max_size=80))
def test_random_bytes_are_a_contract_error(raw: bytes) -> None:
    with pytest.raises(ContractError):
        decode_result(raw)


def test_another_format_version_is_named() -> None:
    raw = bytearray(encode_result(np.ones(1), NO_SUMS))
    raw[4] = 9
    with pytest.raises(VersionError, match=r"format 9.*format 2"):
        decode_result(raw)


def test_only_vectors_of_floats_are_results() -> None:
    for wrong in (np.ones((2, 2)), np.ones(2, dtype=int)):
        with pytest.raises(ContractError):
            encode_result(wrong, NO_SUMS)
    with pytest.raises(ContractError, match="unknown dtype"):
        encode_result(np.ones(2), NO_SUMS, "int8")


def test_decoding_copies_nothing_and_torch_does_not_complain() -> None:
    """From writable memory, as a parsed reply has it, the gradient is a writable view."""
    raw = bytearray(encode_result(torch.ones(5), torch.zeros(4)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient, sums, _ = decode_result(raw)
        total = torch.zeros(5).add_(torch.from_numpy(gradient), alpha=2.0)
        half, _, _ = decode_result(encode_result(torch.ones(5), torch.zeros(4), "float16"))
        total.add_(torch.from_numpy(half))
    assert total.tolist() == [3.0] * 5
    assert np.shares_memory(gradient, np.frombuffer(raw, dtype=np.uint8))
    assert gradient.flags.aligned
    assert sums.flags.aligned


@given(
    gradient=hnp.arrays("f4", st.integers(0, 20), elements=st.floats(-9, 9, width=32)),
    sums=hnp.arrays("f8", st.integers(0, 6), elements=st.floats(-9, 9)),
    buffers=hnp.arrays("f8", st.integers(0, 9), elements=st.floats(allow_nan=False, allow_infinity=False)),
    dtype=st.sampled_from(["float32", "float64", "float16"]),
)
def test_the_buffers_section_comes_back_exactly_whatever_the_gradients_type(
    gradient: np.ndarray, sums: np.ndarray, buffers: np.ndarray, dtype: str
) -> None:
    raw = encode_result(gradient, sums, dtype, buffers)
    assert len(raw) == result_size(gradient.size, sums.size, dtype, buffers.size)
    decoded = decode_result(raw)
    assert np.array_equal(decoded.buffers, buffers)
    assert np.array_equal(decoded.sums, sums)
    head = result_head(raw)
    assert (head.buffers, head.offset) == (buffers.size, gradient_offset(sums.size, buffers.size))
    section = np.frombuffer(raw[head.offset - 8 * head.buffers : head.offset], "<f8")
    assert np.array_equal(section, buffers), "what a reader of a spilled result fetches"
    assert np.array_equal(read_elements(raw[head.offset :], dtype, head.scale), decoded.gradient)


def test_a_buffer_that_is_not_finite_is_refused() -> None:
    with pytest.raises(NonFiniteResult, match="a buffer"):
        encode_result(np.ones(1), NO_SUMS, buffers=np.array([1.0, math.nan]))
