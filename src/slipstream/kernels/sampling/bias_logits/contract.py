"""Add a bias per token, and forbid end tokens before a request's first allowed end.

A bias of -inf forbids: that is how lists of allowed tokens and forbidden single tokens arrive here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Int64


def bias_logits(
    logits: Float32[Tensor, "num_reqs query_len vocab_size"],
    bias: Float32[Tensor, "num_reqs vocab_size"],
    is_end_token: Bool[Tensor, "num_reqs vocab_size"],
    first_end_position: Int64[Tensor, "num_reqs"],
    base_positions: Int64[Tensor, "num_reqs"],
) -> Float32[Tensor, "num_reqs query_len vocab_size"]:
    """Return logits + bias, with end tokens at -inf in rows that predict a position before the first allowed end.

    Args:
        logits: [num_reqs, query_len, vocab_size] float32; -inf = excluded, and stays so.
        bias: [num_reqs, vocab_size] float32; 0 = none, -inf = forbidden.
        is_end_token: [num_reqs, vocab_size] bool.
        first_end_position: [num_reqs] int64; the first position that may hold an end token; 0 = anywhere.
        base_positions: [num_reqs] int64; row j predicts position base + j + 1.

    Returns:
        [num_reqs, query_len, vocab_size] float32. NaN stays NaN, and a forbidden +inf becomes NaN: the row stays
        recognisable as unsound.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host.
    Numerics: one float32 addition; a row without bias keeps every value.
    """
    require("bias_logits", "logits", logits, (-1, -1, -1), torch.float32)
    num_reqs, _, vocab_size = logits.shape
    require("bias_logits", "bias", bias, (num_reqs, vocab_size), torch.float32)
    require("bias_logits", "is_end_token", is_end_token, (num_reqs, vocab_size), torch.bool)
    require("bias_logits", "first_end_position", first_end_position, (num_reqs,), torch.int64)
    require("bias_logits", "base_positions", base_positions, (num_reqs,), torch.int64)
    function = select("sampling/bias_logits", logits.device.type).function
    return function(logits, bias, is_end_token, first_end_position, base_positions)
