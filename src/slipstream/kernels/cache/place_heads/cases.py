"""Named cases of `place_heads`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.cache.place_heads.contract import HeadCounts
from slipstream.kernels.case import Case, Tolerance
from slipstream.kernels.norm.qk_norm_rope.cases import make_table

SINGLE = Tolerance(1e-5, 1e-5, "float32: a sum, a norm and a rotation of values of about 3")
HALF = Tolerance(1e-5, 1.05 * 2.0**-7, "bfloat16: the sum is rounded before the norm, and the result after it")
FLOAT8 = Tolerance(2e-3, 2.0**-3, "e4m3: one rounding of 2^-4 relative, or to the neighbour of what bfloat16 gives")

CASES = (
    Case("sparse", "a kind of head gets the norm of another, or its place", 1, torch.float32, SINGLE, {"index": 2}),
    Case("dense", "an index branch is assumed", 2, torch.float32, SINGLE, {"index": 0}),
    Case("one_split", "a single part is taken for none", 3, torch.float32, SINGLE, {"index": 1, "num_splits": 1}),
    Case("bf16", "the norm is taken before the sum is rounded", 4, torch.bfloat16, HALF, {"index": 1}),
    Case("float8", "what e4m3 cannot hold becomes NaN", 5, torch.bfloat16, FLOAT8, {"index": 1, "is_float8": 1}),
)
NUM_TOKENS = 5
NUM_PAGES = 4
PAGE_SIZE = 4
HEAD_DIM = 16
ROTARY_DIM = 8


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract: a padded token, one whose keys are skipped, pages of sevens."""
    generator = case.generator()
    counts = HeadCounts(num_heads=4, num_kv_heads=2, num_index_heads=case.size("index"))
    width, num_kinds = counts.total * HEAD_DIM, 4 if counts.num_index_heads else 2
    parts = torch.randn(case.size("num_splits", 3), NUM_TOKENS, width, generator=generator) * 3.0
    if case.size("is_float8", 0):
        parts[:, 0, -HEAD_DIM:] = 300.0  # a value head, which no norm makes small
    page_dtype = torch.float8_e4m3fn if case.size("is_float8", 0) else case.dtype
    slots = torch.tensor([6, 5, 13, -1, -1])
    positions = torch.tensor([2, 1, 40, 7, -1])
    pages = torch.full((NUM_PAGES, PAGE_SIZE, counts.num_kv_heads, HEAD_DIM), 7.0)
    inputs: dict[str, Any] = {
        "parts": parts,
        "counts": counts,
        "norm_weight": (torch.randn(num_kinds, HEAD_DIM, generator=generator) * 0.3).to(case.dtype),
        "eps": 1e-6,
        "gemma": True,
        "rope_table": make_table(64, ROTARY_DIM, 1e4),
        "positions": positions,
        "k_pages": pages.to(page_dtype, copy=True),
        "v_pages": pages.to(page_dtype, copy=True),
        "slot_mapping": slots,
        "index_k_pages": None,
        "index_slot_mapping": None,
    }
    if counts.num_index_heads:
        inputs["index_k_pages"] = pages[:, :, 0].to(page_dtype, copy=True)
        inputs["index_slot_mapping"] = torch.tensor([2, 14, -1, 9, -1])
    return inputs
