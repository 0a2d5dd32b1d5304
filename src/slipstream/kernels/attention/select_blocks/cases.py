"""Named cases of `select_blocks`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.case import EXACT, Case

# topk, num_init_blocks, num_local_blocks
CASES = (
    Case("local", "the local block is left out where its score is low", 1, torch.float32, EXACT, {"forced": (3, 0, 1)}),
    Case(
        "init_and_local",
        "forced blocks are added to topk instead of counting",
        2,
        torch.float32,
        EXACT,
        {"forced": (3, 1, 2)},
    ),
    Case("free", "a block is forced although none is asked for", 3, torch.float32, EXACT, {"forced": (2, 0, 0)}),
    Case("ties", "of equal scores any block is taken", 4, torch.float32, EXACT, {"forced": (3, 0, 1)}),
    Case("signed_zeros", "-0.0 ranks below +0.0", 5, torch.float32, EXACT, {"forced": (3, 0, 0)}),
    Case(
        "infinities",
        "a score beyond the forced constant beats a forced block",
        6,
        torch.float32,
        EXACT,
        {"forced": (2, 1, 1)},
    ),
    Case("nan", "NaN ranks highest", 7, torch.float32, EXACT, {"forced": (3, 0, 1)}),
    Case(
        "wide", "more blocks are asked for than the table has columns", 8, torch.float32, EXACT, {"forced": (12, 0, 1)}
    ),
)
PAGE_SIZE, MAX_PAGES, NUM_INDEX_HEADS = 4, 9, 2
POSITIONS = (-1, 0, 3, 4, 15, 16, 31, 32, 35)


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract: positions at the edges of blocks, junk scores in blocks not yet visible."""
    generator = case.generator()
    shape = (len(POSITIONS), NUM_INDEX_HEADS, MAX_PAGES)
    scores = torch.randn(shape, generator=generator)
    if case.name == "ties":
        scores = torch.randint(0, 2, shape, generator=generator).float()
    elif case.name == "signed_zeros":
        scores = torch.where(torch.rand(shape, generator=generator) < 0.5, 0.0, -0.0)
    elif case.name == "infinities":
        scores = torch.where(torch.rand(shape, generator=generator) < 0.5, float("inf"), -3e38)
        scores[:, 1] = float("-inf")
    elif case.name == "nan":
        scores[torch.rand(shape, generator=generator) < 0.4] = float("nan")
    topk, num_init_blocks, num_local_blocks = case.sequence("forced")
    return {
        "scores": scores,
        "positions": torch.tensor(POSITIONS),
        "page_size": PAGE_SIZE,
        "topk": topk,
        "num_init_blocks": num_init_blocks,
        "num_local_blocks": num_local_blocks,
    }
