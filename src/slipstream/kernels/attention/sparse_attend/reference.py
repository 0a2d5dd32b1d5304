"""Definition of `sparse_attend`: one pass over the union of a run's blocks, each query masked to its own choice.

The heads of a lone token read no more than their own blocks, without a mask. With every visible block chosen this is
`dense_attend` to the bit: same keys, same mask, same sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.attention.paged import Run, attend_safely, load_pages, rows_of, runs_of

if TYPE_CHECKING:
    from jaxtyping import Float, Int32, Int64


def sparse_attend(
    q: Float[Tensor, "num_tokens num_heads head_dim"],
    k_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    v_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    page_table: Int32[Tensor, "num_reqs max_pages"],
    req_of_token: Int64[Tensor, "num_tokens"],
    positions: Int64[Tensor, "num_tokens"],
    topk_blocks: Int32[Tensor, "num_tokens num_kv_heads topk"],
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Float[Tensor, "num_tokens num_heads head_dim"]:
    """See the contract."""
    dtype = q.dtype
    q = q if k_scale == 1.0 else q.float() * k_scale
    mixed: list[Tensor] = []
    for run in runs_of(req_of_token, positions, q.shape[1]):
        queries, own_positions, own_choice = rows_of(run, q, positions, topk_blocks)
        table = page_table[run.req]
        part = _attend_run(run, queries, k_pages, v_pages, table, own_positions, own_choice)
        mixed.append((part if v_scale == 1.0 else part * v_scale).to(dtype))
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed) if mixed else torch.zeros_like(q, dtype=dtype)


def _attend_run(
    run: Run,
    queries: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    table: Tensor,
    positions: Tensor,
    topk_blocks: Tensor,
) -> Tensor:
    """Return [run tokens, num_heads, head_dim] float32 attention of one run."""
    page_size = k_pages.shape[1]
    num_index_blocks = run.max_position // page_size + 1
    # Per query and head, in order; -1 and blocks after every query of the run choose nothing.
    choices: list[list[int]] = [
        sorted([choice for choice in choices if 0 <= choice < num_index_blocks])
        for choices in topk_blocks.flatten(0, 1).tolist()
    ]
    union = sorted(set().union(*choices))
    if not union:
        return torch.zeros_like(queries, dtype=torch.float32)
    page_ids: list[int] = table[: union[-1] + 1].tolist()
    num_late_slots = num_index_blocks * page_size - run.max_position - 1
    # Ids are unique within a list, so equal lengths mean that every query and head chose the whole union.
    all_chose_all = all(len(choice) == len(union) for choice in choices)
    if run.num_tokens == 1 and not all_chose_all and _are_alike(choices, num_index_blocks - 1):
        keys, values = _load_by_head((k_pages, v_pages), [[page_ids[block] for block in own] for own in choices])
        num_keys = keys.shape[0] - (num_late_slots if choices[0][-1] == num_index_blocks - 1 else 0)
        return attend_safely(queries, keys[:num_keys], values[:num_keys], None)
    keys, values = load_pages((k_pages, v_pages), [page_ids[index_block] for index_block in union])
    num_keys = keys.shape[0] - (num_late_slots if union[-1] == num_index_blocks - 1 else 0)
    is_hidden: Tensor | None = None
    if all_chose_all and run.min_position == run.max_position:
        return attend_safely(queries, keys[:num_keys], values[:num_keys], None)
    index_blocks = torch.tensor(union, device=queries.device)
    if run.min_position < run.max_position:
        columns = (index_blocks * page_size).unsqueeze(1) + torch.arange(page_size, device=queries.device)
        # [1, run tokens, num_keys]
        is_hidden = (columns.flatten()[:num_keys] > positions.unsqueeze(1)).unsqueeze(0)
    if not all_chose_all:
        # [num_kv_heads, run tokens, len(union)]
        is_unchosen = (topk_blocks.unsqueeze(3) != index_blocks).all(2).transpose(0, 1)
        by_key = is_unchosen.unsqueeze(3).expand(-1, -1, -1, page_size).flatten(2)[:, :, :num_keys]
        is_hidden = by_key if is_hidden is None else by_key | is_hidden
    return attend_safely(queries, keys[:num_keys], values[:num_keys], is_hidden)


def _are_alike(choices: list[list[int]], last_block: int) -> bool:
    """Return whether all heads see equally many keys: as many blocks, and the unfinished last one all or none."""
    first = choices[0]
    if not first:
        return False
    return all(len(own) == len(first) and (own[-1] == last_block) == (first[-1] == last_block) for own in choices)


def _load_by_head(pools: tuple[Tensor, ...], page_ids: list[list[int]]) -> tuple[Tensor, ...]:
    """Return [num_keys, num_kv_heads, head_dim] per pool, where each head's keys come from pages of its own."""
    pages = torch.tensor(page_ids, device=pools[0].device)
    heads = torch.arange(len(page_ids), device=pools[0].device).unsqueeze(1)
    # Two index tensors with an axis between them put the indexed axes first: [num_kv_heads, n, page_size, head_dim].
    return tuple([pool[pages, :, heads].flatten(1, 2).transpose(0, 1) for pool in pools])
