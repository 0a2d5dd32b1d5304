"""Stateless Gumbel noise, keyed by (seed, position of the token to be drawn, token id).

Not here: a generator. Nothing is counted or stored, so a draw does not depend on the batch, on speculation or on
what was drawn before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64


def gumbel_noise(
    seed: Int64[Tensor, "num_tokens"],
    position: Int64[Tensor, "num_tokens"],
    token_ids: Int64[Tensor, "vocab_size"],
) -> Float32[Tensor, "num_tokens vocab_size"]:
    """Return the noise of every listed token for every draw.

    Args:
        seed: [num_tokens] int64; all 64 bits count, any sign.
        position: [num_tokens] int64; position of the token that is drawn. Its low 32 bits count.
        token_ids: [vocab_size] int64; 0 <= id < 2^32. Columns are independent of each other and of their order.

    Returns:
        [num_tokens, vocab_size] float32, between -2.9 and 16.7, never infinite.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host; shapes are those of the arguments.
    Numerics: the hash is exact integer arithmetic, so it is the same on every device. The two logarithms are taken
        in float64 and rounded once to float32.
    """
    require("gumbel_noise", "seed", seed, (-1,), torch.int64)
    require("gumbel_noise", "position", position, tuple(seed.shape), torch.int64)
    require("gumbel_noise", "token_ids", token_ids, (-1,), torch.int64)
    return select("sampling/gumbel_noise", seed.device.type).function(seed, position, token_ids)
