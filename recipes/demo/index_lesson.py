"""What the index branch is taught when all else is frozen: the blocks that the attention would read, saw it everything.

tune_index.py is the loop around it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from network import Attention, Network, norm
from torch import Tensor
from torch.nn import functional

QUESTION_TOKENS = 24
BLOCK_FLOOR = 1e-6
HIDDEN_SCORE = -1e4


@dataclass(frozen=True)
class TuneOptions:
    """Settings of a run: ends with the first of `seconds` and `most_steps`; rates are those of AdamW at the peak."""

    seconds: float
    most_steps: int = 1_000_000
    batch: int = 16
    length: int = 2048
    num_queries: int = 256
    fact_share: float = 0.75
    matrix_rate: float = 1e-3
    norm_rate: float = 2e-3
    margin_weight: float = 3.0
    dtype: torch.dtype = torch.float32


def draw_queries(tokens: Tensor, starts: int, ends: int, count: int, source: torch.Generator) -> Tensor:
    """Draw the positions to look at: questions and answers before others.

    Args:
        tokens: [batch, length] ids.
        starts: id of the marker that begins a turn.
        ends: id of the marker that ends one.
        count: positions for each row.
        source: random numbers.

    Returns:
        [batch, count] positions.
    """
    border = torch.cumsum((tokens == starts).int(), 1)
    own = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    # The next end of a turn behind each place: near it stand the question, or the answer.
    at = torch.where(tokens == ends, own, tokens.shape[1] + QUESTION_TOKENS)
    nearest = at.flip(1).cummin(1).values.flip(1)
    wanted = (nearest - own <= QUESTION_TOKENS) & (border > 0)
    drawn = torch.rand(tokens.shape, device=tokens.device, generator=source) + wanted
    return drawn.topk(min(count, tokens.shape[1]), dim=1).indices


def block_mass(q: Tensor, k: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Return how much of the main attention falls on each block, if every token is visible; mean over a group.

    Args:
        q: [batch, num_rows, num_kv_heads, group_size, head_dim].
        k: [batch, num_keys, num_kv_heads, head_dim].
        positions: [batch, num_rows].
        block_size: tokens per block.

    Returns:
        [batch, num_kv_heads, num_rows, num_blocks] float32.
    """
    scores = torch.einsum("bqhgd,bkhd->bhgqk", q, k).float() * q.shape[-1] ** -0.5
    hidden = torch.arange(k.shape[1], device=k.device) > positions[:, None, None, :, None]
    return scores.masked_fill(hidden, float("-inf")).softmax(-1).mean(2).unflatten(-1, (-1, block_size)).sum(-1)


def block_scores(index_q: Tensor, index_k: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Return the score of every block that can be chosen or not: the query's own and later ones are -inf.

    Args:
        index_q: [batch, num_rows, num_index_heads, index_head_dim].
        index_k: [batch, num_keys, index_head_dim].
        positions: [batch, num_rows].
        block_size: tokens per block.

    Returns:
        [batch, num_index_heads, num_rows, num_blocks] float32.
    """
    products = torch.einsum("bqhd,bkd->bhqk", index_q.float(), index_k.float()) * index_q.shape[-1] ** -0.5
    best = products.unflatten(-1, (-1, block_size)).amax(-1)
    blocks = torch.arange(best.shape[-1], device=best.device)
    return best.masked_fill(blocks >= (positions // block_size)[:, None, :, None], float("-inf"))


def keep_best(scores: Tensor, count: int) -> Tensor:
    """Mark the `count` largest finite entries of the last axis."""
    least = scores.topk(min(count, scores.shape[-1]), dim=-1).values[..., -1:]
    return (scores >= least) & (scores > float("-inf"))


def block_loss(mass: Tensor, scores: Tensor, count: int, margin_weight: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of the index on some queries, and what the selection misses.

    The loss is the KL divergence from the attention's mass on the blocks to the softmax of their scores. The mass is
    not made to sum to one: a query that reads little beyond its own block teaches little. To it comes a margin: a block
    that belongs to the choice should have a score beyond the border of the choice, and this weighs as much as would be
    lost if the best block that does not belong to it took its place. Much of the mass lies on queries that read a
    little everywhere, for whom one block is as good as the next; the margin leaves them out.

    Args:
        mass: [batch, num_heads, num_rows, num_blocks] mean over the query heads of a group.
        scores: [batch, num_heads, num_rows, num_blocks]; -inf where a block is not to be ranked.
        count: blocks that are chosen by score.
        margin_weight: of the margin.

    Returns:
        The loss, the mean missed mass, and how much of it the best choice would not have missed.
    """
    ranked = scores > float("-inf")
    mass = torch.where(ranked & (ranked.sum(-1, keepdim=True) > count), mass, 0.0)
    finite = scores.masked_fill(~ranked, HIDDEN_SCORE)
    share = mass / mass.sum(-1, keepdim=True).clamp_min(BLOCK_FLOOR)
    divergence = (mass * (share.clamp_min(BLOCK_FLOOR).log() - finite.log_softmax(-1))).sum(-1)
    size = min(count + 1, scores.shape[-1])
    # Between the last score that is chosen and the first that is not.
    border = finite.topk(size, dim=-1).values[..., -2:].mean(-1, keepdim=True)
    best = mass.topk(size, dim=-1).values
    regret = (mass - best[..., -1:]).clamp_min(0.0)
    margin = (regret * functional.softplus(border - finite)).sum(-1)
    missed = (mass * ~keep_best(scores, count)).sum(-1)
    least = mass.sum(-1) - best[..., :count].sum(-1)
    loss = divergence.mean() + margin_weight * margin.mean()
    return loss, missed.mean(), (missed - least).mean()


def tuned_attention(
    attention: Attention, x: Tensor, table: tuple[Tensor, Tensor], queries: Tensor, options: TuneOptions
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor] | None]:
    """Attend as the engine does, without gradients, and return the index loss beside it.

    Args:
        attention: of one layer.
        x: [batch, length, hidden] input of the layer, normalised.
        table: rotary table of all positions.
        queries: [batch, count] positions at which the loss is taken.
        options: weights of the loss.
    """
    shape = attention.shape
    with torch.no_grad():
        q, k, v = attention.project(x, table)
    heads = [part.repeat_interleave(shape.group_size, 2).transpose(1, 2) for part in (k, v)]
    flat = q.flatten(2, 3).transpose(1, 2)
    if not attention.sparse:
        out, found = functional.scaled_dot_product_attention(flat, *heads, is_causal=True), None
    else:
        row = torch.arange(x.shape[0], device=x.device)[:, None]
        index_q, index_k = attention.index_queries(x, table), attention.index_keys(x, table)
        count = shape.topk_blocks - shape.num_local_blocks
        with torch.no_grad():
            positions = torch.arange(x.shape[1], device=x.device)[None]
            keep = keep_best(block_scores(index_q, index_k, positions, shape.index_block_size), count)
            own = torch.arange(keep.shape[-1], device=x.device) == (positions // shape.index_block_size)[..., None]
            tokens = (keep | own[:, None]).repeat_interleave(shape.index_block_size, -1)
            visible = tokens & (positions <= positions[0][:, None])
            out = functional.scaled_dot_product_attention(
                flat, *heads, attn_mask=visible.repeat_interleave(shape.group_size, 1)
            )
            mass = block_mass(q[row, queries], k, queries, shape.index_block_size)
        scores = block_scores(index_q[row, queries], index_k, queries, shape.index_block_size)
        found = block_loss(mass, scores, count, options.margin_weight)
    with torch.no_grad():
        return attention.times(out.transpose(1, 2).flatten(2), attention.o_proj), found


def lesson_step(network: Network, tokens: Tensor, queries: Tensor, options: TuneOptions) -> list[Tensor]:
    """Add the gradients of one batch; return loss, missed mass and needlessly missed mass, means over layers."""
    with torch.no_grad():
        x = network.embed[tokens].to(options.dtype)
    table = network.rotary(torch.arange(tokens.shape[1], device=tokens.device))
    sums: list[Tensor] = []
    for block in network.blocks:
        attended, found = tuned_attention(
            block.attention, norm(x, block.input_norm, block.eps), table, queries, options
        )
        if found is not None:
            found[0].backward()
            sums.append(torch.stack([value.detach() for value in found]))
        with torch.no_grad():
            x = x + attended
            x = x + block.mlp(norm(x, block.post_norm, block.eps))[0]
    return list(torch.stack(sums).mean(0))
