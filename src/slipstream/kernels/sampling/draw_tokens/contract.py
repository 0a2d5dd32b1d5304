"""Draw one token per row: arg-max of logits / temperature + noise, or of the logits alone.

Not here: filters. An excluded token arrives as -inf and is never drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64


def draw_tokens(
    logits: Float32[Tensor, "num_tokens vocab_size"],
    temperature: Float32[Tensor, "num_tokens"],
    seed: Int64[Tensor, "num_tokens"],
    position: Int64[Tensor, "num_tokens"],
    *,
    token_ids: Int64[Tensor, "vocab_size"] | None = None,
    has_noise: bool,
) -> Int64[Tensor, "num_tokens"]:
    """Return one token id per row.

    Args:
        logits: [num_tokens, vocab_size] float32; -inf = excluded.
        temperature: [num_tokens] float32; 0 = greedy, no noise for that row.
        seed: [num_tokens] int64.
        position: [num_tokens] int64; position of the token that is drawn.
        token_ids: [vocab_size] int64; token id of each column; None = the column's number.
        has_noise: False is allowed when every row is greedy; then temperature, seed and position are not read.

    Returns:
        [num_tokens] int64 token ids. A row that holds NaN or +inf, or nothing above -inf, gives some listed token id.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host.
    Numerics: float32, relative to the row's maximum; ties go to the first column. A greedy row gives the same token
        whatever `has_noise` says.
    """
    require("draw_tokens", "logits", logits, (-1, -1), torch.float32)
    count, width = logits.shape
    require("draw_tokens", "temperature", temperature, (count,), torch.float32)
    require("draw_tokens", "seed", seed, (count,), torch.int64)
    require("draw_tokens", "position", position, (count,), torch.int64)
    if token_ids is not None:
        require("draw_tokens", "token_ids", token_ids, (width,), torch.int64)
    function = select("sampling/draw_tokens", logits.device.type).function
    return function(logits, temperature, seed, position, token_ids, has_noise)
