"""Named cases of `choose_blocks`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.attention.index_score.cases import make_inputs as make_score_inputs
from slipstream.kernels.case import EXACT, Case

LONG = {"seq_lens": (37, 1, 30, 18), "query_lens": (1, 1, 7, 3), "page_size": 4, "max_pages": 10, "num_padding": 1}
SHORT = {"seq_lens": (9, 1, 12), "query_lens": (1, 1, 6), "page_size": 4, "max_pages": 8, "num_padding": 2}
CASES = (
    Case("integers", "selection depends on rounding, or on the order of ties", 1, torch.float32, EXACT, LONG),
    Case("bf16_integers", "scores are rounded before they are compared", 2, torch.bfloat16, EXACT, LONG),
    Case("float8_integers", "float8 keys change the order", 4, torch.bfloat16, EXACT, {**LONG, "float8": 1}),
    Case("short_integers", "a short context is not taken whole", 3, torch.float32, EXACT, SHORT),
)
TOPK, NUM_INIT_BLOCKS, NUM_LOCAL_BLOCKS = 4, 1, 2


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract; integer operands, so that ties are plenty and every product exact."""
    return {
        **make_score_inputs(case),
        "topk": TOPK,
        "num_init_blocks": NUM_INIT_BLOCKS,
        "num_local_blocks": NUM_LOCAL_BLOCKS,
    }
