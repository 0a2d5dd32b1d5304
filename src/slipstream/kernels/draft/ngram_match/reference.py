"""Definition of the match by comparing every earlier ending at once."""

from __future__ import annotations

import torch
from torch import Tensor


def ngram_match(history: Tensor, last_positions: Tensor, ngram_max: int, ngram_min: int, draft_len: int) -> Tensor:
    """See the contract."""
    max_model_len = history.shape[1]
    is_valid = (last_positions >= 0) & (last_positions < max_model_len)
    last = torch.where(is_valid, last_positions, 0)[:, None]
    ends = torch.arange(max_model_len, device=history.device)[None, :]

    # match_len[e]: how many tokens before and at e equal those before and at s, up to ngram_max.
    match_len = torch.zeros_like(history)
    still_equal = ends < last
    for back in range(ngram_max):
        earlier = history.roll(back, dims=1)
        wanted = history.gather(1, (last - back).clamp(min=0))
        still_equal = still_equal & (ends >= back) & (earlier == wanted)
        match_len += still_equal
    # Longest first, then most recent: one key orders both.
    key = torch.where(match_len >= ngram_min, match_len * max_model_len + ends, -1)
    best, end = key.max(-1, keepdim=True)

    sources = end + torch.arange(1, draft_len + 1, device=history.device)[None, :]
    is_proposed = (best >= 0) & (sources <= last) & is_valid[:, None]
    return torch.where(is_proposed, history.gather(1, torch.where(is_proposed, sources, 0)), -1)
