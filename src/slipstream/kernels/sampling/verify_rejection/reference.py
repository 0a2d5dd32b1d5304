"""Definition of rejection verification."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.kernels.sampling.exact_math import exact_log, fixed_point, relative_weight
from slipstream.kernels.sampling.gumbel_noise.reference import gumbel_noise, uniform_noise
from slipstream.kernels.sampling.purposes import Purpose, seed_for

TOTAL_BITS = 44


def verify_rejection(
    logits: Tensor,
    temperature: Tensor,
    draws: Tensor,
    draft_tokens: Tensor,
    draft_probs: Tensor | None,
    seed: Tensor,
    base_positions: Tensor,
) -> tuple[Tensor, Tensor]:
    """See the contract."""
    num_reqs, draft_len = draft_tokens.shape
    if not draft_len or not num_reqs:
        return draws.new_zeros(num_reqs), draws
    probs = target_probs(logits[:, :-1], temperature)
    drafts = draft_tokens.clamp(min=0)
    target_prob = probs.gather(-1, drafts[..., None])[..., 0]
    draft_prob: Tensor | float = 1.0
    if draft_probs is not None:
        draft_prob = draft_probs.gather(-1, drafts[..., None])[..., 0].double()
    uniform = accept_uniforms(seed, base_positions, draft_len)
    is_accepted = (draft_tokens >= 0) & (uniform * draft_prob < target_prob)
    num_accepted = is_accepted.long().cumprod(-1).sum(-1)

    # HAZARD: rows behind a rejected draft may be NaN, so the row of the cut is picked by index, never by a masked sum.
    entries = torch.arange(num_reqs, device=logits.device)
    cut = num_accepted.clamp(max=draft_len - 1)
    rejected = draft_tokens[entries, cut]
    if draft_probs is None:
        guessed = torch.zeros_like(probs[:, 0]).scatter(-1, rejected.clamp(min=0)[:, None], 1.0)
    else:
        guessed = draft_probs[entries, cut].double()
        guessed = torch.where(guessed > 0, guessed, 0.0)
    weights = residual_weights(probs[entries, cut], guessed)
    residual_token = draw_weighted(weights, seed, base_positions + 1 + cut)
    has_residual = (num_accepted < draft_len) & (rejected >= 0)
    last = torch.where(has_residual, residual_token, draws[entries, num_accepted])
    offsets = torch.arange(draft_len + 1, device=logits.device)
    padded = torch.cat([drafts, draws[:, -1:]], 1)
    emitted = torch.where(offsets < num_accepted[:, None], padded, draws)
    return num_accepted, torch.where(offsets == num_accepted[:, None], last[:, None], emitted)


def target_probs(logits: Tensor, temperature: Tensor) -> Tensor:
    """Return [num_reqs, draft_len, vocab_size] float64: what the draws of these rows are drawn from."""
    top = logits.amax(-1, keepdim=True)
    scale = torch.where(temperature > 0, temperature, 1.0)[:, None, None]
    # A row without a sound maximum is its request's end; it only must not disturb the others.
    weights = relative_weight(torch.where(torch.isfinite(top), logits - top, 0.0) / scale)
    return weights / (fixed_point(weights, TOTAL_BITS).sum(-1, keepdim=True).double() * 2.0**-TOTAL_BITS)


def accept_uniforms(seed: Tensor, base_positions: Tensor, draft_len: int) -> Tensor:
    """Return [num_reqs, draft_len] float64 in (0, 1), one per position of a draft."""
    positions = base_positions[:, None] + torch.arange(1, draft_len + 1, device=seed.device)
    seeds = seed_for(seed, Purpose.ACCEPT)[:, None].expand_as(positions).reshape(-1)
    return uniform_noise(seeds, positions.reshape(-1), torch.zeros_like(seed[:1])).view(positions.shape)


def residual_weights(target: Tensor, guessed: Tensor) -> Tensor:
    """Return [num_reqs, vocab_size] what the target has more of than the guess; the target if that is nothing."""
    residual = (target - guessed).clamp(min=0.0)
    return torch.where((residual > 0).any(-1, keepdim=True), residual, target)


def draw_weighted(weights: Tensor, seed: Tensor, position: Tensor) -> Tensor:
    """Return [num_reqs] int64 tokens drawn in proportion to weights that need not sum to one."""
    token_ids = torch.arange(weights.shape[1], device=weights.device)
    return (exact_log(weights) + gumbel_noise(seed_for(seed, Purpose.RESIDUAL), position, token_ids)).argmax(-1)
