"""Accept drafts with probability min(1, p / q), and replace the first rejected one from what p has more of than q.

Not here: filters and the target's own draws, which arrive as arguments. Which rows are verified this way is the
caller's choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.sampling.checks import require
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64


def verify_rejection(
    logits: Float32[Tensor, "num_reqs query_len vocab_size"],
    temperature: Float32[Tensor, "num_reqs"],
    draws: Int64[Tensor, "num_reqs query_len"],
    draft_tokens: Int64[Tensor, "num_reqs draft_len"],
    draft_probs: Float32[Tensor, "num_reqs draft_len vocab_size"] | None,
    seed: Int64[Tensor, "num_reqs"],
    base_positions: Int64[Tensor, "num_reqs"],
) -> tuple[Int64[Tensor, "num_reqs"], Int64[Tensor, "num_reqs query_len"]]:
    """Return how many drafts are accepted and the tokens of the ladder.

    With p = softmax(logits / temperature) of ladder row j and q the distribution that draft j + 1 was drawn from,
    draft x stays while u * q(x) < p(x). The first one that does not is replaced by a draw from max(p - q, 0). When
    all stay, and where there is no proposal, the token is the row's own draw, which is a draw from p.

    Args:
        logits: [num_reqs, query_len, vocab_size] float32; filtered, -inf = excluded.
        temperature: [num_reqs] float32; a row at 0 means nothing (greedy rows are not verified this way).
        draws: [num_reqs, query_len] int64; the target's own draw of each row, from p, with noise of purpose TARGET.
        draft_tokens: [num_reqs, query_len - 1] int64; negative = no proposal, never accepted.
        draft_probs: [num_reqs, query_len - 1, vocab_size] float32; q of each draft. None = each draft was certain.
        seed: [num_reqs] int64; the requests' own.
        base_positions: [num_reqs] int64; position of ladder row 0; draft j + 1 is at base + j + 1.

    Returns:
        num_accepted: [num_reqs] int64; 0 <= num_accepted <= query_len - 1.
        emitted: [num_reqs, query_len] int64; entries 0 .. num_accepted count, the rest are valid ids and mean nothing.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: reads nothing on the host.
    Numerics: p in float64 from the exponential of `exact_math`; its total is summed in 44-bit fixed point relative to
        the row's maximum, and a residual is drawn by the logarithm of `exact_math`, so that no order of summation and
        no device shows. A p is within 2^-26 of itself for 200,064 tokens, where the noise has 23 bits. A q that is NaN
        rejects its draft; NaN and negative q then count as 0. A residual without mass, which only rounding can make,
        is replaced by p.
    Source: speculative sampling (arXiv 2211.17192), algorithm 1.
    """
    require("verify_rejection", "logits", logits, (-1, -1, -1), torch.float32)
    num_reqs, query_len, vocab_size = logits.shape
    require("verify_rejection", "temperature", temperature, (num_reqs,), torch.float32)
    require("verify_rejection", "draws", draws, (num_reqs, query_len), torch.int64)
    require("verify_rejection", "draft_tokens", draft_tokens, (num_reqs, query_len - 1), torch.int64)
    if draft_probs is not None:
        require("verify_rejection", "draft_probs", draft_probs, (num_reqs, query_len - 1, vocab_size), torch.float32)
    require("verify_rejection", "seed", seed, (num_reqs,), torch.int64)
    require("verify_rejection", "base_positions", base_positions, (num_reqs,), torch.int64)
    function = select("sampling/verify_rejection", logits.device.type).function
    return function(logits, temperature, draws, draft_tokens, draft_probs, seed, base_positions)
