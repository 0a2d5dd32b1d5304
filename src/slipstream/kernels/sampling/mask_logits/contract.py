"""Exclude every token whose bit in a packed set is not set, at every ladder row.

Not here: who decides what is allowed (`text.grammar`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float32, Int32

TOKENS_PER_WORD = 32


def mask_logits(
    logits: Float32[Tensor, "num_reqs query_len vocab_size"],
    allowed: Int32[Tensor, "num_reqs query_len num_words"],
) -> Float32[Tensor, "num_reqs query_len vocab_size"]:
    """Return the logits with every token that is not allowed at -inf.

    Args:
        logits: [num_reqs, query_len, vocab_size] float32; -inf = excluded, and stays so.
        allowed: [num_reqs, query_len, num_words] int32; num_words = ceil(vocab_size / 32). Bit i % 32 of word i // 32,
            counted from the least significant, is set when token i is allowed; bits past the vocabulary are not read.

    Returns:
        [num_reqs, query_len, vocab_size] float32. NaN stays NaN, and +inf that is not allowed becomes NaN: the row
        stays recognisable as unsound. A row that allows nothing is -inf throughout.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host.
    Numerics: allowed values are kept.
    """
    require("mask_logits", "logits", logits, (-1, -1, -1), torch.float32)
    num_reqs, query_len, vocab_size = logits.shape
    num_words = (vocab_size + TOKENS_PER_WORD - 1) // TOKENS_PER_WORD
    require("mask_logits", "allowed", allowed, (num_reqs, query_len, num_words), torch.int32)
    return select("sampling/mask_logits", logits.device.type).function(logits, allowed)
