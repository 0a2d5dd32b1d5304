"""Named cases of `sparse_attend`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slipstream.kernels.attention.dense_attend.cases import (
    HALF,
    MIXED,
    NUM_KV_HEADS,
    SINGLE,
    make_attention_inputs,
)
from slipstream.kernels.attention.paged_batch import make_batch
from slipstream.kernels.case import Case

LONG = {"seq_lens": (37, 3, 30), "query_lens": (1, 1, 7), "page_size": 4, "max_pages": 10, "num_padding": 2}
CASES = (
    Case("long", "a block is read for a head or token that did not choose it", 1, torch.float32, SINGLE, LONG),
    Case("bf16", "products or probabilities are rounded to bfloat16", 2, torch.bfloat16, HALF, LONG),
    Case("short", "padding ids, -1, are looked up as pages", 3, torch.float32, SINGLE, MIXED),
    Case("unordered", "only ascending ids are understood", 4, torch.float32, SINGLE, LONG),
    Case("nothing_chosen", "a query without blocks divides nothing by nothing", 5, torch.float32, SINGLE, LONG),
    Case(
        "square",
        "token-major and head-major lists have one shape where num_tokens equals num_kv_heads",
        6,
        torch.float32,
        SINGLE,
        {"seq_lens": (31,), "query_lens": (2,), "page_size": 4, "max_pages": 8, "num_padding": 0},
    ),
    Case("float8", "scales of float8 pages are left out, or swapped", 7, torch.bfloat16, HALF, {**LONG, "float8": 1}),
)
TOPK = 3


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract; every token and head has a choice of its own."""
    generator = case.generator()
    batch = make_batch(case, generator)
    inputs = make_attention_inputs(case, batch, generator)
    topk_blocks = choose_at_random(inputs["positions"], batch.page_size, generator)
    if case.name == "unordered":
        topk_blocks = topk_blocks.flip(2)
    elif case.name == "nothing_chosen":
        topk_blocks[0] = -1
        topk_blocks[4, 1] = -1
    return {**inputs, "topk_blocks": topk_blocks}


def choose_at_random(positions: Tensor, page_size: int, generator: torch.Generator) -> Tensor:
    """Return [num_tokens, NUM_KV_HEADS, TOPK] int32: the own block and random earlier ones, ascending, then -1."""
    chosen = torch.full((len(positions), NUM_KV_HEADS, TOPK), -1, dtype=torch.int32)
    for token, position in enumerate(positions.tolist()):
        own = position // page_size
        for head in range(NUM_KV_HEADS):
            earlier = torch.randperm(max(own, 0), generator=generator)[: TOPK - 1].tolist()
            ids = sorted([*earlier, own]) if own >= 0 else []
            chosen[token, head, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
    return chosen
