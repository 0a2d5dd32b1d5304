"""Batches for properties of paged attention: made, permuted, cut, and read back without pages."""

from __future__ import annotations

import torch

from slipstream.kernels.attention.paged_batch import fill_pages, make_batch
from slipstream.kernels.case import EXACT, Case

TOKEN_FIELDS = ("q", "index_q", "req_of_token", "positions", "topk_blocks")
POOLS = ("k_pages", "v_pages", "index_k_pages")


def make_world(
    seq_lens, query_lens, *, page_size=4, max_pages=16, num_padding=0, heads=(4, 2, 8), seed=0, dtype=torch.float32
):
    """Return tensors of a batch by the names that the contracts use; pages hold NaN where nothing was written.

    Args:
        heads: query heads, key-value heads, head_dim; index heads and width follow the key-value heads.
    """
    sizes = {"seq_lens": tuple(seq_lens), "query_lens": tuple(query_lens)}
    sizes |= {"page_size": page_size, "max_pages": max_pages, "num_padding": num_padding}
    generator = torch.Generator().manual_seed(seed)
    batch = make_batch(Case("world", "", seed, dtype, EXACT, sizes), generator)
    num_heads, num_kv_heads, head_dim = heads
    num_tokens = len(batch.positions)

    def draw(*shape):
        return torch.randn(*shape, generator=generator).to(dtype)

    def pool(*inner):
        return fill_pages(batch, [draw(seq_len, *inner) for seq_len in batch.seq_lens])

    return {
        "q": draw(num_tokens, num_heads, head_dim),
        "index_q": draw(num_tokens, num_kv_heads, head_dim),
        "k_pages": pool(num_kv_heads, head_dim),
        "v_pages": pool(num_kv_heads, head_dim),
        "index_k_pages": pool(head_dim),
        "page_table": batch.page_table,
        "req_of_token": batch.req_of_token,
        "positions": batch.positions,
    }


def with_shuffled_pages(world, seed):
    """Return the same batch with its physical pages in other places; the null page stays page 0."""
    num_pages = len(world["k_pages"])
    place = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(num_pages - 1, generator=rng(seed))])
    moved = dict(world)
    for name in POOLS:
        moved[name] = torch.empty_like(world[name])
        moved[name][place] = world[name]
    moved["page_table"] = place[world["page_table"].long()].int()
    return moved


def with_identity_pages(world):
    """Return the same batch with every request's tokens in neighbouring pages: contiguous storage."""
    num_reqs, max_pages = world["page_table"].shape
    straight = dict(world)
    order = torch.cat([torch.zeros(1, dtype=torch.int64), world["page_table"].long().flatten()])
    for name in POOLS:
        straight[name] = world[name][order]
    straight["page_table"] = 1 + torch.arange(num_reqs * max_pages, dtype=torch.int32).view(num_reqs, max_pages)
    return straight


def tokens_of(world, tokens):
    """Return the same pages with some of the query tokens, in the order given."""
    return {name: value[tokens] if name in TOKEN_FIELDS else value for name, value in world.items()}


def padded(world, num_padding):
    """Return the batch with padding tokens appended whose queries are NaN."""
    longer = dict(world)
    for name in ("q", "index_q"):
        longer[name] = torch.cat(
            [world[name], torch.full_like(world[name][:1], float("nan")).repeat(num_padding, 1, 1)]
        )
    longer["req_of_token"] = torch.cat([world["req_of_token"], torch.zeros(num_padding, dtype=torch.int64)])
    longer["positions"] = torch.cat([world["positions"], torch.full((num_padding,), -1)])
    if "topk_blocks" in world:
        none = torch.full_like(world["topk_blocks"][:1], -1).repeat(num_padding, 1, 1)
        longer["topk_blocks"] = torch.cat([world["topk_blocks"], none])
    return longer


def rng(seed):
    return torch.Generator().manual_seed(seed)
