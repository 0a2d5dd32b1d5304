from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slipstream.base.errors import KernelError, ShapeError
from slipstream.kernels.linear.matmul_mxfp8.contract import matmul_mxfp8
from slipstream.kernels.linear.matmul_mxfp8.layout import MAX_SCALE, MIN_SCALE, dequantise, pack, unpack
from slipstream.kernels.linear.matmul_mxfp8.plan import MAX_UNITS, num_splits, units_per_split
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of

OPERATION = "linear/matmul_mxfp8"
FAULTS = [
    ("rounded_parts", "one_row"),
    ("narrow_splits", "several_splits"),
    ("first_tile_only", "many_rows"),
    ("halves_swapped", "odd_outputs"),
    ("rounded_parts", "tail"),
    ("rounded_weights", "integers"),
    ("small_codes_lost", "every_code"),
    ("sign_lost", "every_code"),
    ("neighbour_scale", "uneven_scales"),
    ("row_scale", "uneven_scales"),
]


def any_codes(out_features, in_features, seed=0):
    """All finite codes, drawn evenly."""
    numbers = torch.randint(0, 254, (out_features, in_features), generator=torch.Generator().manual_seed(seed))
    return (numbers + (numbers >= 127).long()).to(torch.uint8)


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    check_mutant(OPERATION, case_name, partial(mutants.matmul_mxfp8, fault=fault), mutants.matmul_mxfp8)


@given(out_features=st.integers(1, 130), in_units=st.integers(1, 6), seed=st.integers(0, 99))
def test_what_is_packed_comes_back_bit_for_bit(out_features, in_units, seed):
    codes = any_codes(out_features, in_units * 64, seed)
    generator = torch.Generator().manual_seed(seed)
    shape = (out_features, in_units * 2)
    scales = torch.randint(MIN_SCALE, MAX_SCALE + 1, shape, generator=generator, dtype=torch.uint8)
    words, scale_words = pack(codes.view(torch.float8_e4m3fn), scales)
    assert words.shape == (-(-out_features // 64), in_units, 2048)
    got_codes, got_scales = unpack(words, scale_words, out_features)
    assert torch.equal(got_codes.view(torch.uint8), codes)
    assert torch.equal(got_scales, scales)


def test_the_packed_matrix_is_the_checkpoint_s():
    codes = any_codes(70, 128)
    scales = torch.arange(100, 100 + 70 * 4).remainder(30).add(100).view(70, 4).to(torch.uint8)
    matrix = dequantise(*pack(codes, scales), 70)
    for row, column in ((0, 0), (69, 127), (3, 31), (3, 32), (64, 64), (17, 95)):
        code = codes.view(torch.float8_e4m3fn)[row, column].double().item()
        assert matrix[row, column].item() == code * 2.0 ** (scales[row, column // 32].item() - 127)


def test_every_code_and_scale_is_exact_in_bfloat16():
    """What the layout's limits promise to a kernel that multiplies in bfloat16."""
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    finite = codes[~codes.float().isnan()].double()
    for scale in (MIN_SCALE, MIN_SCALE + 1, 127, MAX_SCALE):
        products = finite * 2.0 ** (scale - 127)
        assert torch.equal(products.bfloat16().double(), products)
    below = finite * 2.0 ** (MIN_SCALE - 1 - 127)
    assert not torch.equal(below.bfloat16().double(), below)


@pytest.mark.parametrize(
    ("code", "scale", "is_fine"),
    [(0x7F, 127, False), (0xFF, 127, False), (0x01, 2, False), (0x01, 3, True), (0x01, 135, False), (0x80, 0, True)],
)
def test_inexact_or_nan_weights_are_refused_and_zeros_may_have_any_scale(code, scale, is_fine):
    codes = torch.zeros(2, 64, dtype=torch.uint8)
    codes[1, 40] = code
    scales = torch.full((2, 2), 127, dtype=torch.uint8)
    scales[1, 1] = scale
    if is_fine:
        assert torch.equal(unpack(*pack(codes, scales), 2)[0].view(torch.uint8), codes)
        return
    with pytest.raises(KernelError, match="NaN, or a scale outside"):
        pack(codes, scales)


def test_widths_that_do_not_fit_are_refused():
    with pytest.raises(KernelError, match=r"codes are \[4, 96\] and scales \[4, 3\]; allowed are in_features in mult"):
        pack(torch.zeros(4, 96, dtype=torch.uint8), torch.zeros(4, 3, dtype=torch.uint8))
    with pytest.raises(KernelError, match=r"scales \[4, 2\]"):
        pack(torch.zeros(4, 128, dtype=torch.uint8), torch.zeros(4, 2, dtype=torch.uint8))


def test_a_row_does_not_depend_on_the_others():
    inputs = inputs_of(OPERATION, "many_rows")
    together = matmul_mxfp8(**inputs)
    for row in (0, 15, 16, 34):
        alone = matmul_mxfp8(**{**inputs, "x": inputs["x"][row : row + 1]})
        assert torch.equal(alone[:, 0], together[:, row])


def test_an_empty_batch_gives_empty_parts():
    inputs = inputs_of(OPERATION, "several_splits")
    parts = matmul_mxfp8(**{**inputs, "x": inputs["x"][:0]})
    assert parts.shape == (num_splits(128, 1536), 0, 128)
    assert parts.dtype == torch.float32


@given(out_units=st.integers(1, 200), in_units=st.integers(1, 200))
def test_splits_cover_the_inner_axis_and_are_not_more_than_needed(out_units, in_units):
    units = units_per_split(out_units, in_units)
    splits = num_splits(out_units * 64, in_units * 64)
    assert units in (4, MAX_UNITS)
    assert (splits - 1) * units < in_units <= splits * units


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": torch.zeros(1, 2, 7, dtype=torch.int16)}, r"words is \[1, 2, 7\] int16"),
        ({"words": torch.zeros(1, 2, 2048)}, r"words is \[1, 2, 2048\] float32"),
        ({"scale_words": torch.zeros(1, 1, 64, dtype=torch.int32)}, r"scale_words is \[1, 1, 64\] int32"),
        ({"out_features": 200}, "for 200 out_features"),
        ({"x": torch.zeros(3, 64).bfloat16()}, r"x is \[3, 64\] bfloat16, allowed is \[num_tokens, 128\]"),
        ({"x": torch.zeros(3, 128)}, r"x is \[3, 128\] float32"),
    ],
)
def test_disagreements_are_refused(changes, message):
    with pytest.raises(ShapeError, match=message):
        matmul_mxfp8(**{**inputs_of(OPERATION, "odd_outputs"), **changes})
