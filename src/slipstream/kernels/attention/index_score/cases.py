"""Named cases of `index_score`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.attention.paged_batch import fill_pages, make_batch
from slipstream.kernels.case import EXACT, Case, Tolerance

SINGLE = Tolerance(2e-5, 2e-6, "float32: sums of 16 products of about 1; -inf must be exact")

MIXED = {"seq_lens": (9, 1, 16, 5), "query_lens": (1, 1, 6, 2), "page_size": 4, "max_pages": 6, "num_padding": 2}
CASES = (
    Case("mixed", "keys after a token's own position are scored", 1, torch.float32, SINGLE, MIXED),
    Case(
        "integers",
        "products of small integers are exact in any order: scores must be too",
        2,
        torch.float32,
        EXACT,
        MIXED,
    ),
    Case("bf16_integers", "products are rounded to bfloat16 before the maximum", 3, torch.bfloat16, EXACT, MIXED),
    Case("nan_query", "a product that is NaN is taken for the largest", 4, torch.float32, SINGLE, MIXED),
    Case(
        "page_edges",
        "the block of a position at a page's edge is off by one",
        5,
        torch.float32,
        SINGLE,
        {"seq_lens": (4, 5, 8, 9), "query_lens": (1, 1, 2, 3), "page_size": 4, "max_pages": 3, "num_padding": 0},
    ),
    Case(
        "padding_only",
        "a batch of padding reads the null page",
        6,
        torch.float32,
        SINGLE,
        {"seq_lens": (3,), "query_lens": (0,), "page_size": 4, "max_pages": 2, "num_padding": 3},
    ),
    Case("float8_integers", "float8 keys are read as other numbers", 7, torch.bfloat16, EXACT, {**MIXED, "float8": 1}),
)
NUM_INDEX_HEADS, INDEX_HEAD_DIM = 2, 16


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract; integers where the case says so, 100 units wide in bfloat16."""
    generator = case.generator()
    batch = make_batch(case, generator)
    is_integer = "integers" in case.name
    # Products of up to 16 * 11 * 11 need more than the 8 bits of a bfloat16.
    limit = 11 if case.dtype == torch.bfloat16 else 4

    def draw(*shape: int) -> torch.Tensor:
        if is_integer:
            return torch.randint(-limit, limit + 1, shape, generator=generator).to(case.dtype)
        return torch.randn(*shape, generator=generator).to(case.dtype)

    index_q = draw(len(batch.positions), NUM_INDEX_HEADS, INDEX_HEAD_DIM)
    contents = [draw(seq_len, INDEX_HEAD_DIM) for seq_len in batch.seq_lens]
    if case.size("float8", 0):
        contents = [content.to(torch.float8_e4m3fn) for content in contents]
    if case.name == "nan_query":
        index_q[0, 0] = float("nan")
    return {
        "index_q": index_q,
        "index_k_pages": fill_pages(batch, contents),
        "index_page_table": batch.page_table,
        "req_of_token": batch.req_of_token,
        "positions": batch.positions,
    }
