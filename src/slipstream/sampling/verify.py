"""Verification of a ladder: one function for greedy and coupled rows.

The target draws its own token at every ladder row, with the noise of that token's position. A draft is accepted
while it equals the draw. The emitted tokens are draws of the target in every case, so the text does not depend on
the drafter; a greedy row is one whose draw needs no noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.batch.step_inputs import SamplingInputs
from slipstream.kernels.sampling.verify_chain.contract import verify_chain
from slipstream.sampling.classes import SamplingClass
from slipstream.sampling.sampler import draw, expand_sampling


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verify step decided.

    Entries j <= num_accepted of `emitted` are the tokens to emit: the accepted drafts, then the target's own token.
    Later entries follow a rejected draft and mean nothing.
    """

    num_accepted: Tensor  # [num_reqs] int64; 0 .. query_len - 1
    emitted: Tensor  # [num_reqs, query_len] int64; the target's draws
    is_finite: Tensor  # [num_reqs] bool; False when a row that emits held NaN or +inf, or allowed no token


def verify(
    logits: Tensor,
    draft_tokens: Tensor,
    base_positions: Tensor,
    sampling: SamplingInputs,
    sampling_class: SamplingClass,
) -> Verdict:
    """Return how many drafts are accepted and what is emitted.

    Args:
        logits: [num_reqs, query_len, vocab_size] float32; ladder row j is at position n + j and predicts n + j + 1.
            -inf is a token that may not be emitted.
        draft_tokens: [num_reqs, query_len - 1] int64; d1..dK; NO_TOKEN is never accepted.
        base_positions: [num_reqs] int64; n, the position of ladder row 0; -1 = padding, whose verdict is ignored.
        sampling: parameters of the requests.
        sampling_class: at least the class of every request.

    Returns:
        The verdict. No value is read on the host and all shapes are static.
    """
    num_reqs, query_len, vocab_size = logits.shape
    offsets = torch.arange(1, query_len + 1, device=logits.device)
    drawn_positions = base_positions[:, None] + offsets  # [num_reqs, query_len]
    flat = logits.reshape(num_reqs * query_len, vocab_size)
    draws = draw(flat, drawn_positions.reshape(-1), expand_sampling(sampling, query_len), sampling_class)
    emitted = draws.view(num_reqs, query_len)
    num_accepted = verify_chain(emitted, draft_tokens)
    # Rows past the accepted ones saw a rejected draft: a fault there is not the request's.
    is_usable = torch.isfinite(logits.amax(-1)) | (offsets - 1 > num_accepted[:, None])
    return Verdict(num_accepted=num_accepted, emitted=emitted, is_finite=is_usable.all(-1))
