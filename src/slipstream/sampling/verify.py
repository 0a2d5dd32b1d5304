"""Verification of a ladder: one function for greedy, coupled and rejection rows, side by side in one batch.

The target draws its own token at every ladder row, with the noise of that token's position. Greedy and coupled: a
draft is accepted while it equals the draw, and what is emitted are the draws, so the text does not depend on the
drafter; a greedy row is one whose draw needs no noise. Rejection: a draft is accepted by its probability, and only the
distribution of the text does not depend on the drafter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.batch.step_inputs import SamplingInputs
from slipstream.kernels.sampling.verify_chain.contract import verify_chain
from slipstream.kernels.sampling.verify_rejection.contract import verify_rejection
from slipstream.sampling.classes import SamplingClass
from slipstream.sampling.sampler import draw_filtered, expand_sampling, filter_for_draw


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verify step decided.

    Entries j <= num_accepted of `emitted` are the tokens to emit: the accepted drafts, then the target's own token.
    Later entries follow a rejected draft and mean nothing.
    """

    num_accepted: Tensor  # [num_reqs] int64; 0 .. query_len - 1
    emitted: Tensor  # [num_reqs, query_len] int64; every entry is a token id
    is_finite: Tensor  # [num_reqs] bool; False when a row that emits held NaN or +inf, or allowed no token


def verify(
    logits: Tensor,
    draft_tokens: Tensor,
    base_positions: Tensor,
    sampling: SamplingInputs,
    sampling_class: SamplingClass,
    draft_probs: Tensor | None = None,
) -> Verdict:
    """Return how many drafts are accepted and what is emitted.

    Args:
        logits: [num_reqs, query_len, vocab_size] float32; ladder row j is at position n + j and predicts n + j + 1.
            -inf is a token that may not be emitted.
        draft_tokens: [num_reqs, query_len - 1] int64; d1..dK; NO_TOKEN is never accepted.
        base_positions: [num_reqs] int64; n, the position of ladder row 0; -1 = padding, whose verdict is ignored.
        sampling: parameters of the requests.
        sampling_class: at least the class of every request.
        draft_probs: [num_reqs, query_len - 1, vocab_size] float32; what each draft of a rejection request was drawn
            from; None = every draft was certain. Not read for other requests.

    Returns:
        The verdict. No value is read on the host and all shapes are static.
    """
    num_reqs, query_len, vocab_size = logits.shape
    offsets = torch.arange(1, query_len + 1, device=logits.device)
    drawn_positions = base_positions[:, None] + offsets  # [num_reqs, query_len]
    flat = logits.reshape(num_reqs * query_len, vocab_size)
    expanded = expand_sampling(sampling, query_len)
    filtered = filter_for_draw(flat, expanded, sampling_class)
    draws = draw_filtered(filtered, drawn_positions.reshape(-1), expanded, sampling_class).view(num_reqs, query_len)
    emitted, num_accepted = draws, verify_chain(draws, draft_tokens)
    if sampling.is_rejection is not None and query_len > 1:
        by_rejection, rejection_tokens = verify_rejection(
            filtered.view(logits.shape),
            sampling.temperature,
            draws,
            draft_tokens,
            draft_probs,
            sampling.seed,
            base_positions,
        )
        is_rejection = sampling.is_rejection & (sampling.temperature > 0)
        num_accepted = torch.where(is_rejection, by_rejection, num_accepted)
        emitted = torch.where(is_rejection[:, None], rejection_tokens, draws)
    # Rows past the accepted ones saw a rejected draft: a fault there is not the request's.
    is_usable = torch.isfinite(logits.amax(-1))
    if query_len > 1:
        is_usable |= offsets - 1 > num_accepted[:, None]
    return Verdict(num_accepted=num_accepted, emitted=emitted, is_finite=is_usable.all(-1))
