"""Remove the tokens that a row's min-p, top-k and top-p exclude.

Not here: drawing, penalties, the temperature's effect on the draw. The logits that stay keep their bits, so a row
without filters is the same whether it went through here or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import INTEGERS, require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float32, Int


def filter_logits(
    logits: Float32[Tensor, "num_tokens vocab_size"],
    temperature: Float32[Tensor, "num_tokens"],
    top_k: Int[Tensor, "num_tokens"],
    top_p: Float32[Tensor, "num_tokens"],
    min_p: Float32[Tensor, "num_tokens"],
) -> Float32[Tensor, "num_tokens vocab_size"]:
    """Return the logits with every excluded token at -inf.

    Order: the temperature scales in float32, then min-p, then top-k, then top-p on what remains, renormalised. Ties
    at a cut are resolved by token id, ascending; top-k keeps exactly k of the tokens that min-p left, and the most
    likely token always stays.

    Args:
        logits: [num_tokens, vocab_size] float32; -inf is a token that is already excluded.
        temperature: [num_tokens] float32; 0 = greedy, whose row is returned as it is.
        top_k: [num_tokens] int32 or int64; 0 = off.
        top_p: [num_tokens] float32; 1 = off.
        min_p: [num_tokens] float32; 0 = off.

    Returns:
        [num_tokens, vocab_size] float32. A row that holds NaN or +inf, or nothing above -inf, is returned as it is.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host; one code path for every mixture of rows.
    Numerics: a token weighs e^(scaled logit - scaled maximum), as `exact_math` computes it, which is the same on every
        device; min-p keeps a weight of at least min_p. The mass of top-p is summed in 40-bit fixed point relative to
        the row's maximum, so the cut does not depend on the order of summation. The set that stays is therefore the
        same on every device, bit for bit.
    Source: order of filters as in vLLM, so that the same parameters mean the same set of tokens.
    """
    require("filter_logits", "logits", logits, (-1, -1), torch.float32)
    count = (logits.shape[0],)
    require("filter_logits", "temperature", temperature, count, torch.float32)
    require("filter_logits", "top_k", top_k, count, *INTEGERS)
    require("filter_logits", "top_p", top_p, count, torch.float32)
    require("filter_logits", "min_p", min_p, count, torch.float32)
    function = select("sampling/filter_logits", logits.device.type).function
    return function(logits, temperature, top_k, top_p, min_p)
