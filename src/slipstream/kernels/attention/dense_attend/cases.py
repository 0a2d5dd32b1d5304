"""Named cases of `dense_attend`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.attention.paged_batch import PagedBatch, fill_pages, make_batch
from slipstream.kernels.case import Case, Tolerance

SINGLE = Tolerance(2e-6, 1e-5, "float32: softmax over at most 40 values of about 1")
HALF = Tolerance(1e-5, 1.05 * 2.0**-8, "bfloat16: one rounding of the result, 2^-8 relative, and the float32 part")

MIXED = {"seq_lens": (9, 1, 16, 5), "query_lens": (1, 1, 6, 2), "page_size": 4, "max_pages": 6, "num_padding": 2}
CASES = (
    Case("mixed", "unwritten pages, which hold NaN, leak through a zero probability", 1, torch.float32, SINGLE, MIXED),
    Case("bf16", "products or probabilities are rounded to bfloat16", 2, torch.bfloat16, HALF, MIXED),
    Case(
        "first_visible",
        "a layer without a row for position 0 reads it",
        3,
        torch.float32,
        SINGLE,
        {**MIXED, "first": 1},
    ),
    Case(
        "late_first", "whole pages before the first visible position", 4, torch.float32, SINGLE, {**MIXED, "first": 6}
    ),
    Case(
        "page_edges",
        "the last key of a full page, or the first of the next, is lost",
        5,
        torch.float32,
        SINGLE,
        {"seq_lens": (3, 4, 5, 8), "query_lens": (1, 1, 1, 8), "page_size": 4, "max_pages": 2, "num_padding": 0},
    ),
    Case(
        "padding_between", "padding inside a request's run of tokens", 6, torch.float32, SINGLE, {**MIXED, "holes": 1}
    ),
    Case("float8", "scales of float8 pages are left out, or swapped", 7, torch.bfloat16, HALF, {**MIXED, "float8": 1}),
)
FLOAT8_SCALES = {"k_scale": 0.5, "v_scale": 3.0}
"""Of float8 cases; powers of two or not, both must be applied."""
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 6, 2, 8


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract."""
    generator = case.generator()
    batch = make_batch(case, generator)
    inputs = make_attention_inputs(case, batch, generator)
    return {**inputs, "first_visible": case.size("first", 0)}


def make_attention_inputs(case: Case, batch: PagedBatch, generator: torch.Generator) -> dict[str, Any]:
    """Return queries, pages and addressing of a batch."""
    keys = [torch.randn(seq_len, NUM_KV_HEADS, HEAD_DIM, generator=generator) for seq_len in batch.seq_lens]
    values = [torch.randn(seq_len, NUM_KV_HEADS, HEAD_DIM, generator=generator) for seq_len in batch.seq_lens]
    positions = batch.positions.clone()
    if case.size("holes", 0):
        positions[[3, 5]] = -1
    stored = torch.float8_e4m3fn if case.size("float8", 0) else case.dtype
    return {
        "q": torch.randn(len(positions), NUM_HEADS, HEAD_DIM, generator=generator).to(case.dtype),
        "k_pages": fill_pages(batch, [key.to(stored) for key in keys]),
        "v_pages": fill_pages(batch, [value.to(stored) for value in values]),
        **(FLOAT8_SCALES if case.size("float8", 0) else {}),
        "page_table": batch.page_table,
        "req_of_token": batch.req_of_token,
        "positions": positions,
    }
