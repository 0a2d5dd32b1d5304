"""Choose index blocks: the rule that the engine follows, in plain tensors.

Score of a block = largest index product over the keys that the query may see; local blocks come first and count among
the chosen; then by score descending, equal scores by lower block id.
"""

from __future__ import annotations

import torch
from torch import Tensor


def top_mask(scores: Tensor, count: int) -> Tensor:
    """Mark the `count` largest entries of the last axis; of equal entries the lower index wins.

    Args:
        scores: [..., n] float.
        count: how many to mark.

    Returns:
        [..., n] bool.
    """
    ids = torch.arange(scores.shape[-1], device=scores.device)
    mine, other = scores.unsqueeze(-1), scores.unsqueeze(-2)
    ahead = (other > mine) | ((other == mine) & (ids < ids.unsqueeze(-1)))
    return ahead.sum(-1) < count


def score_blocks(index_q: Tensor, index_k: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Score every block for every query.

    Args:
        index_q: [batch, num_queries, num_index_heads, index_head_dim].
        index_k: [batch, num_keys, index_head_dim]; num_keys is a multiple of block_size, key i is at position i.
        positions: [batch or 1, num_queries] position of each query; it sees keys up to its own.
        block_size: tokens per block.

    Returns:
        [batch, num_index_heads, num_queries, num_blocks] float32; -inf where no key is visible.
    """
    products = torch.einsum("bqhd,bkd->bhqk", index_q.float(), index_k.float())
    keys = torch.arange(index_k.shape[1], device=index_k.device)
    hidden = keys > positions[:, None, :, None]
    return products.masked_fill(hidden, float("-inf")).unflatten(-1, (-1, block_size)).amax(-1)


def replace_scores(scores: Tensor, selection: str) -> Tensor:
    """Put other scores in place of the index's where a block is visible: `random` ones, or `local`: later is better."""
    if selection == "random":
        other = torch.rand_like(scores)
    elif selection == "local":
        other = torch.arange(scores.shape[-1], device=scores.device, dtype=scores.dtype).expand_as(scores)
    else:
        raise ValueError(f"selection {selection!r}: allowed are learned, random and local")
    return torch.where(scores > float("-inf"), other, scores)


def select_blocks(scores: Tensor, positions: Tensor, block_size: int, topk: int, num_local: int) -> Tensor:
    """Mark the chosen blocks of every query.

    Args:
        scores: result of score_blocks.
        positions: [batch or 1, num_queries].
        block_size: tokens per block.
        topk: most blocks to choose, local ones included.
        num_local: blocks that end with the query's own and are always chosen.

    Returns:
        [batch, num_index_heads, num_queries, num_blocks] bool.
    """
    blocks = torch.arange(scores.shape[-1], device=scores.device)
    own = (positions // block_size)[:, None, :, None]
    local = (blocks <= own) & (blocks > own - num_local)
    forced = torch.where(local, torch.inf, scores)
    return top_mask(forced, topk) & (forced > float("-inf"))


def visible_tokens(keep: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Expand chosen blocks to the keys that a query attends to: [batch, heads, num_queries, num_keys] bool."""
    tokens = keep.repeat_interleave(block_size, dim=-1)
    keys = torch.arange(tokens.shape[-1], device=keep.device)
    return tokens & (keys <= positions[:, None, :, None])
