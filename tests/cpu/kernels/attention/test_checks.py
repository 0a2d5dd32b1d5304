from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import KernelError, ShapeError
from slipstream.kernels.attention.checks import check_addressing, check_kv_pages, check_scales

Q = torch.zeros(3, 4, 8)
TABLE = torch.zeros(2, 5, dtype=torch.int32)
INTS = torch.zeros(3, dtype=torch.int64)
PAGES = torch.zeros(6, 4, 2, 8)


def test_what_fits_passes():
    check_addressing("op", Q, TABLE, INTS, INTS)
    check_kv_pages("op", Q, PAGES, PAGES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Q, TABLE.long(), INTS, INTS), r"op: page_table is \[2, 5\] int64"),
        ((Q, TABLE[0], INTS, INTS), r"op: page_table is \[5\] int32"),
        ((Q, TABLE, INTS[:2], INTS), r"op: req_of_token is \[2\] int64, allowed is \[3\] int64"),
        ((Q, TABLE, INTS.int(), INTS), "op: req_of_token is .*int32"),
        ((Q, TABLE, INTS, INTS.float()), "op: positions is .*float32"),
    ],
)
def test_addressing_that_does_not_fit_is_named(arguments, message):
    with pytest.raises(ShapeError, match=message):
        check_addressing("op", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Q[0], PAGES, PAGES), r"op: q is \[4, 8\]"),
        ((Q[:, :3], PAGES, PAGES), r"op: q is \[3, 3, 8\] float32, allowed is \[num_tokens, a multiple of 2, 8\]"),
        ((Q, PAGES[..., :7], PAGES[..., :7]), "for these k_pages"),
        ((Q, PAGES[0], PAGES[0]), r"a multiple of \?, 8"),
        ((Q, PAGES, PAGES[:5]), r"op: v_pages is \[5, 4, 2, 8\]"),
        ((Q, PAGES, PAGES.bfloat16()), "op: v_pages is .*bfloat16"),
    ],
)
def test_pages_that_do_not_fit_are_named(arguments, message):
    with pytest.raises(ShapeError, match=message):
        check_kv_pages("op", *arguments)


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1.0), (torch.bfloat16, 1), (torch.float8_e4m3fn, 0.25)])
def test_scales_that_fit_pass(dtype, scale):
    check_scales("op", PAGES.to(dtype), scale, scale)


@pytest.mark.parametrize(
    ("dtype", "scales", "message"),
    [
        (torch.bfloat16, (2.0, 1.0), "op: k_scale is 2.0 for bfloat16 pages, allowed is 1"),
        (torch.float32, (1.0, 0.5), "op: v_scale is 0.5 for float32 pages"),
        (torch.float8_e4m3fn, (1.0, 0.0), "v_scale is 0.0 for float8_e4m3fn pages, allowed is a finite number above 0"),
        (torch.float8_e4m3fn, (float("nan"), 1.0), "k_scale is nan"),
        (torch.float8_e4m3fn, (float("inf"), 1.0), "k_scale is inf"),
    ],
)
def test_scales_that_do_not_fit_are_named(dtype, scales, message):
    with pytest.raises(KernelError, match=message):
        check_scales("op", PAGES.to(dtype), *scales)
