"""Definition of `select_blocks`: one 64-bit integer per block, and the largest topk of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from slipstream.kernels.attention.index_score.reference import NAN_SCORE

if TYPE_CHECKING:
    from jaxtyping import Float32, Int32, Int64

# A key, from its high bits to its low bits: forced class, ordered score, inverted block id.
_ID_BITS = 24
_LAST_ID = (1 << _ID_BITS) - 1
_INIT_CLASS = 1 << 57
_LOCAL_CLASS = 1 << 58
_HIDDEN_KEY = -(1 << 62)


def select_blocks(
    scores: Float32[Tensor, "num_tokens num_index_heads max_pages"],
    positions: Int64[Tensor, "num_tokens"],
    page_size: int,
    topk: int,
    num_init_blocks: int,
    num_local_blocks: int,
) -> Int32[Tensor, "num_tokens num_kv_heads topk"]:
    """See the contract."""
    max_pages = scores.shape[2]
    index_blocks = torch.arange(max_pages, device=scores.device)
    # Floor division keeps -1 at -1: every block is after the own block of a padding token.
    age = (positions // page_size).view(-1, 1, 1) - index_blocks
    keys = ordering_keys(scores, index_blocks)
    if num_init_blocks:
        keys[:, :, :num_init_blocks] = _LAST_ID - index_blocks[:num_init_blocks] + _INIT_CLASS
    if num_local_blocks:
        # Written after the initial blocks: a block that is both is local.
        keys = torch.where(age < num_local_blocks, _LAST_ID - index_blocks + _LOCAL_CLASS, keys)
    keys = keys.masked_fill(age < 0, _HIDDEN_KEY)
    best = torch.topk(keys, min(topk, max_pages), dim=2, sorted=False).values
    # A hidden key has no bits set where the id is, so it decodes to _LAST_ID and sorts last.
    ascending = torch.sort(_LAST_ID - (best & _LAST_ID), dim=2).values
    chosen = ascending.masked_fill(ascending == _LAST_ID, -1).int()
    return chosen if max_pages >= topk else functional.pad(chosen, (0, topk - max_pages), value=-1)


def ordering_keys(scores: Tensor, index_blocks: Tensor) -> Tensor:
    """Return int64 keys whose order is score descending, then block id ascending.

    Args:
        scores: [..., n] float32; NaN counts as -1e30, -0.0 as +0.0.
        index_blocks: [n] int64 block ids, 0 .. 2^24 - 2.

    Returns:
        [..., n] int64, all different within a row.
    """
    cleaned = scores.nan_to_num(nan=NAN_SCORE, posinf=float("inf"), neginf=float("-inf")) + 0.0
    bits = cleaned.view(torch.int32)
    # The bits of a negative float fall as the number rises: flip all but the sign.
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    return (ordered << _ID_BITS) + (_LAST_ID - index_blocks)
