"""Named cases of `write_kv`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case

CASES = (
    Case("scattered", "rows land in another slot of their page", 1, torch.float32, EXACT, {"num_skipped": 0}),
    Case("skipped", "slot -1 wraps to the last slot of the pool", 2, torch.float32, EXACT, {"num_skipped": 2}),
    Case("all_skipped", "a batch of padding still writes", 3, torch.float32, EXACT, {"num_skipped": 5}),
    Case("bf16_pages", "rows are stored in the rows' dtype", 4, torch.bfloat16, EXACT, {"num_skipped": 1}),
    Case("indexed", "index keys follow the slots of the keys", 5, torch.float32, EXACT, {"num_skipped": 1, "index": 1}),
    Case(
        "interleaved",
        "a pool that holds K beside V is flattened by a copy",
        6,
        torch.float32,
        EXACT,
        {"num_skipped": 1},
    ),
    Case(
        "float8",
        "what is beyond 448 is stored as NaN, or a scale is left out",
        7,
        torch.float8_e4m3fn,
        EXACT,
        {"num_skipped": 1, "index": 1},
    ),
    Case("float8_infinite", "infinities are stored as NaN", 8, torch.float8_e4m3fn, EXACT, {"num_skipped": 0}),
)
NUM_TOKENS, NUM_PAGES, PAGE_SIZE, NUM_KV_HEADS, HEAD_DIM, INDEX_HEAD_DIM = 5, 4, 4, 2, 3, 6


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract; every slot holds its own number before the write."""
    generator = case.generator()
    k, v = torch.randn(2, NUM_TOKENS, NUM_KV_HEADS, HEAD_DIM, generator=generator)
    if case.name == "interleaved":
        pool = _numbered(NUM_PAGES, 2, PAGE_SIZE, NUM_KV_HEADS, HEAD_DIM)
        k_pages, v_pages = pool[:, 0], pool[:, 1]
    else:
        k_pages = _numbered(NUM_PAGES, PAGE_SIZE, NUM_KV_HEADS, HEAD_DIM).to(case.dtype)
        v_pages = (k_pages.float() + 100.0).to(case.dtype)
    inputs: dict[str, Any] = {"k": k, "v": v, "k_pages": k_pages, "v_pages": v_pages}
    if case.name == "float8":
        # Up to 1,800 before the scales, 360 and 1,800 after them.
        inputs |= {"k": k * 600, "v": v * 600, "k_scale": 5.0, "v_scale": 1.0}
    elif case.name == "float8_infinite":
        k[0, 0, 0], k[1, 1, 1], v[2, 0, 2] = float("inf"), float("-inf"), 1e30
    inputs["slot_mapping"] = _slots(case, generator, NUM_PAGES)
    if case.size("index", 0):
        inputs["index_k"] = torch.randn(NUM_TOKENS, INDEX_HEAD_DIM, generator=generator)
        inputs["index_k_pages"] = _numbered(NUM_PAGES + 1, PAGE_SIZE, INDEX_HEAD_DIM)
        if case.name == "float8":
            inputs["index_k"] *= 600
            inputs["index_k_pages"] = inputs["index_k_pages"].to(case.dtype)
        inputs["index_slot_mapping"] = _slots(case, generator, NUM_PAGES + 1)
    return inputs


def _numbered(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape)


def _slots(case: Case, generator: torch.Generator, num_pages: int) -> Tensor:
    """Return distinct slots outside the null page, some of them replaced by -1."""
    slots = PAGE_SIZE + torch.randperm((num_pages - 1) * PAGE_SIZE - 1, generator=generator)[:NUM_TOKENS]
    skipped = torch.randperm(NUM_TOKENS, generator=generator)[: case.size("num_skipped")]
    slots[skipped] = -1
    return slots
