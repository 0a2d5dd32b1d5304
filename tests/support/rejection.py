"""Rejection sampling written down a second time: as a scalar loop, and with named faults that must be noticed."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.kernels.sampling.gumbel_noise.contract import gumbel_noise
from slipstream.kernels.sampling.gumbel_noise.reference import uniform_noise
from slipstream.kernels.sampling.purposes import Purpose, seed_for

FAULTS = ("bonus_from_residual", "no_clamp", "wrong_row", "shared_noise", "accept_by_p_only", "draft_resampled")
FIRST = torch.zeros(1, dtype=torch.int64)


def scalar_ladder(logits, temperature, draws, drafts, probs, uniforms, noise) -> list[int]:
    """Return the emitted tokens of one ladder. `probs` None means that every draft was certain."""
    emitted: list[int] = []
    for row, draft in enumerate(drafts):
        if draft < 0:
            return [*emitted, int(draws[row])]
        top = logits[row].max()
        # A row without a sound maximum is its request's end: any valid token will do, and all are equal.
        scores = logits[row] - top if torch.isfinite(top) else torch.zeros_like(logits[row])
        p = torch.softmax(scores.div(temperature).double(), -1)
        q = torch.eye(len(p), dtype=torch.float64)[draft] if probs is None else probs[row].double()
        if not uniforms[row] * q[draft] < p[draft]:
            weights = (p - q.nan_to_num(0.0)).clamp(min=0)
            weights = weights if weights.sum() > 0 else p
            return [*emitted, int((weights.log() + noise[row]).argmax())]
        emitted.append(draft)
    return [*emitted, int(draws[len(drafts)])]


def purpose_seed(seed: Tensor, purpose: Purpose, fault: str | None) -> Tensor:
    """Return the seed of a purpose; under the fault `shared_noise` all purposes have the same."""
    return seed if fault == "shared_noise" else seed_for(seed, purpose)


def verify_faulty(
    logits, temperature, draws, draft_tokens, draft_probs, seed, base_positions, fault: str | None = None
) -> tuple[Tensor, Tensor]:
    """Do what `verify_rejection` does, or something wrong. For ladders with a proposal in every place."""
    num_reqs, query_len, vocab_size = logits.shape
    draft_len, rows, ids = query_len - 1, torch.arange(num_reqs), torch.arange(vocab_size)
    p = torch.softmax(logits.double() / temperature[:, None, None], -1)
    q = draft_probs.double() if draft_probs is not None else torch.nn.functional.one_hot(draft_tokens, vocab_size)
    accepted, alive = torch.zeros(num_reqs, dtype=torch.int64), torch.ones(num_reqs, dtype=torch.bool)
    for place in range(draft_len):
        draft = draft_tokens[:, place]
        accept_seed = purpose_seed(seed, Purpose.ACCEPT, fault)
        uniform = uniform_noise(accept_seed, base_positions + 1 + place, FIRST)[:, 0]
        scale = 1.0 if fault == "accept_by_p_only" else q[rows, place, draft]
        alive &= uniform * scale < p[rows, place, draft]
        accepted += alive
    cut = accepted.clamp(max=draft_len - 1)
    row = (cut + 1).clamp(max=draft_len) if fault == "wrong_row" else cut
    gap = p[rows, row] - q[rows, cut]
    weights = gap.abs() if fault == "no_clamp" else gap.clamp(min=0)
    weights = p[rows, row] if fault == "draft_resampled" else weights
    noise = gumbel_noise(purpose_seed(seed, Purpose.RESIDUAL, fault), base_positions + 1 + cut, ids)
    residual = (weights.log() + noise).argmax(-1)
    bonus = draws[:, -1]
    if fault == "bonus_from_residual":
        left = (p[:, -1] - q[:, -1]).clamp(min=0)
        bonus = (left.log() + gumbel_noise(seed_for(seed, Purpose.RESIDUAL), base_positions + query_len, ids)).argmax(
            -1
        )
    last = torch.where(accepted < draft_len, residual, bonus)
    emitted = torch.cat([draft_tokens, draws[:, -1:]], 1)
    return accepted, emitted.scatter(1, accepted[:, None], last[:, None])
