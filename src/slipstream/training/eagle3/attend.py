"""Attention of unrolled draft steps: causal over the fresh rows of a text, then each start's own draft rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

RECOMPUTE_ROWS = 512
"""From this many rows on, scores are computed again for the gradient instead of being kept."""


def attend(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Attend from every start of a text to what it sees in its draft step.

    Row p of step i sees the rows 0 .. p of step 0, which a decode round would have stored from fresh taps, and the
    rows p of steps 1 .. i, its own drafts.

    Args:
        q: [batch, rows, num_heads, head_dim].
        keys: one per step so far, each [batch, rows, num_kv_heads, head_dim]; at least that of step 0.
        values: like keys.

    Returns:
        [batch, rows, num_heads * head_dim].
    """
    num_kv_heads = keys[0].shape[2]
    grouped = q.unflatten(2, (num_kv_heads, -1))
    mixed: list[Tensor] = []
    for head in range(num_kv_heads):
        parts = (grouped[:, :, head], [k[:, :, head] for k in keys], [v[:, :, head] for v in values])
        if q.shape[1] >= RECOMPUTE_ROWS and torch.is_grad_enabled():
            mixed.append(checkpoint(_attend_group, *parts, use_reentrant=False, preserve_rng_state=False))  # type: ignore[arg-type]
        else:
            mixed.append(_attend_group(*parts))
    return torch.stack(mixed, 2).flatten(2)


def _attend_group(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Return [batch, rows, group, head_dim] of one KV head, whose q is [batch, rows, group, head_dim]."""
    rows, head_dim = q.shape[1], q.shape[3]
    is_hidden = torch.ones(rows, rows, dtype=torch.bool, device=q.device).triu(1)
    # [batch, group, rows, rows], then one column for every later step
    scores = [(q.transpose(1, 2) @ keys[0].transpose(1, 2).unsqueeze(1)).float().masked_fill(is_hidden, -torch.inf)]
    scores += [(q * k.unsqueeze(2)).float().sum(-1).transpose(1, 2).unsqueeze(-1) for k in keys[1:]]
    probs = (torch.cat(scores, -1) * head_dim**-0.5).softmax(-1).to(q.dtype)
    mixed = (probs[..., :rows] @ values[0].unsqueeze(1)).transpose(1, 2)
    for step, v in enumerate(values[1:]):
        mixed = mixed + probs[..., rows + step].transpose(1, 2).unsqueeze(-1) * v.unsqueeze(2)
    return mixed
