"""How the attention references read pages: runs of query tokens, and the keys that a run may see.

A reference walks the batch run by run, so what a token gets never depends on what else is in the batch. Page ids and
ranges of positions are read on the host, which a CPU reference may do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

MAX_TILE_SCORES = 1 << 22
"""Float32 scores that one tile of queries may hold (16 MiB): bounds the memory of a prefill chunk."""
MAX_TILE_TOKENS = 64
"""Query tokens of a tile: later tiles of a chunk see more keys than earlier ones, so small tiles skip more work."""


class Run(NamedTuple):
    """Consecutive query tokens start .. end - 1 of one request; positions are -1 where all are padding."""

    start: int
    end: int
    req: int
    min_position: int
    max_position: int

    @property
    def num_tokens(self) -> int:
        """Return the query tokens of the run."""
        return self.end - self.start


def runs_of(req_of_token: Tensor, positions: Tensor, num_heads: int) -> Iterator[Run]:
    """Yield the runs of a batch in order, cut into tiles.

    A tile's size depends on its own run only: a request is computed alike alone and in a batch, to the bit.

    Args:
        req_of_token: [num_tokens] int64.
        positions: [num_tokens] int64.
        num_heads: scores of a tile per query token and key.
    """
    reqs: list[int] = req_of_token.tolist()
    places: list[int] = positions.tolist()
    if len(reqs) == 1:
        yield Run(0, 1, reqs[0], places[0], places[0])
        return
    start = 0
    for end in range(1, len(reqs) + 1):
        if end < len(reqs) and reqs[end] == reqs[start]:
            continue
        tile = _tile_tokens(num_heads, max(places[start:end]) + 1)
        for first in range(start, end, tile):
            span = places[first : min(first + tile, end)]
            yield Run(first, first + len(span), reqs[start], min(span), max(span))
        start = end


def rows_of(run: Run, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return a run's rows of tensors whose axis 0 is num_tokens; the tensors themselves when the run is the batch."""
    if run.num_tokens == tensors[0].shape[0]:
        return tensors
    return tuple([tensor[run.start : run.end] for tensor in tensors])


def _tile_tokens(num_heads: int, num_keys: int) -> int:
    """Return how many query tokens a tile may hold."""
    return max(1, min(MAX_TILE_TOKENS, MAX_TILE_SCORES // max(1, num_heads * num_keys)))


def load_pages(pools: tuple[Tensor, ...], page_ids: list[int]) -> tuple[Tensor, ...]:
    """Return the tokens of some pages of each pool, in the order given.

    Args:
        pools: [num_pages, page_size, ...] each.
        page_ids: physical pages, at least one, none negative.

    Returns:
        [n * page_size, ...] per pool, of its dtype. Neighbouring pages come without a copy: never write to them.
    """
    first, last = page_ids[0], page_ids[-1]
    if last - first + 1 == len(page_ids) and page_ids == list(range(first, last + 1)):
        return tuple([pages[first : last + 1].flatten(0, 1) for pages in pools])
    index = torch.tensor(page_ids, device=pools[0].device)
    return tuple([pages.index_select(0, index).flatten(0, 1) for pages in pools])


def attend(queries: Tensor, keys: Tensor, values: Tensor, is_hidden: Tensor | None) -> Tensor:
    """Return softmax attention of one request's queries over loaded keys and values.

    Args:
        queries: [num_tokens, num_heads, head_dim]; head h reads key-value head h // (num_heads / num_kv_heads).
        keys: [num_keys, num_kv_heads, head_dim].
        values: [num_keys, num_kv_heads, head_dim].
        is_hidden: bool, broadcastable to [num_kv_heads, num_tokens, num_keys], True where a key must not count;
            None when every query sees every key.

    Returns:
        [num_tokens, num_heads, head_dim] float32; NaN where a query sees nothing, and where a hidden value is NaN.
    """
    num_tokens, _, head_dim = queries.shape
    num_keys, num_kv_heads, _ = keys.shape
    if num_tokens == 1:
        # The heads of one token lie in the order that the products want.
        grouped = queries.view(num_kv_heads, -1, head_dim).float() * head_dim**-0.5
    else:
        grouped = queries.view(num_tokens, num_kv_heads, -1, head_dim).permute(1, 0, 2, 3)
        grouped = grouped.reshape(num_kv_heads, -1, head_dim).float() * head_dim**-0.5
    # holds [num_kv_heads, num_tokens * group, num_keys], float32 values
    scores = torch.bmm(grouped, keys.float().permute(1, 2, 0))
    if is_hidden is not None:
        # Replaced, not added to: a product that is NaN is gone as well.
        by_token = scores if num_tokens == 1 else scores.view(num_kv_heads, num_tokens, -1, num_keys)
        by_token.masked_fill_(is_hidden if num_tokens == 1 else is_hidden.unsqueeze(-2), float("-inf"))
    # In place: a second buffer of this size costs more than the softmax (fresh memory is mapped page by page).
    probs = torch.softmax(scores, dim=2, out=scores)
    mixed = torch.bmm(probs, values.float().permute(1, 0, 2))
    if num_tokens == 1:
        return mixed.view(queries.shape)
    return mixed.view(num_kv_heads, num_tokens, -1, head_dim).permute(1, 0, 2, 3).reshape(queries.shape)


def attend_safely(queries: Tensor, keys: Tensor, values: Tensor, is_hidden: Tensor | None) -> Tensor:
    """Return `attend` with zeros where a query sees nothing and no trace of hidden values.

    A hidden value has probability zero, and zero times NaN is NaN. Removing hidden values per query would cost a copy
    of the values per query, so the sum is taken first and repaired only where it is not finite.
    """
    mixed = attend(queries, keys, values, is_hidden)
    if is_hidden is None or _is_finite(mixed):
        return mixed
    num_tokens, num_kv_heads = len(mixed), keys.shape[1]
    sees_nothing = is_hidden.all(-1).expand(num_kv_heads, num_tokens).t()
    mixed.view(num_tokens, num_kv_heads, -1).masked_fill_(sees_nothing.unsqueeze(-1), 0.0)
    return mixed if _is_finite(mixed) else _attend_strictly(queries, keys, values, is_hidden)


def _attend_strictly(queries: Tensor, keys: Tensor, values: Tensor, is_hidden: Tensor) -> Tensor:
    """Return the attention of each query over nothing but the keys that it sees, one query at a time."""
    num_tokens, num_heads, head_dim = queries.shape
    num_keys, num_kv_heads, _ = keys.shape
    is_seen = ~is_hidden.expand(num_kv_heads, num_tokens, num_keys)
    mixed = torch.zeros(num_tokens, num_kv_heads, num_heads // num_kv_heads, head_dim, device=queries.device)
    grouped = queries.view(mixed.shape)
    for kv_head in range(num_kv_heads):
        for token in range(num_tokens):
            seen = is_seen[kv_head, token].nonzero().squeeze(1)
            if len(seen):
                own_keys = keys[seen, kv_head].unsqueeze(1)
                own_values = values[seen, kv_head].unsqueeze(1)
                mixed[token, kv_head] = attend(grouped[token, kv_head].unsqueeze(0), own_keys, own_values, None)[0]
    return mixed.view(queries.shape)


def _is_finite(tensor: Tensor) -> bool:
    """Return whether no element is NaN or infinite; an overflowing sum also says no, which only costs time."""
    return math.isfinite(float(tensor.sum()))
