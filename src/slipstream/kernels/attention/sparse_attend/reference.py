"""Definition of `sparse_attend`: one pass over the union of a run's blocks, each query masked to its own choice.

With every visible block chosen this is `dense_attend` to the bit: same keys, same mask, same sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.attention.paged import Run, attend_safely, load_pages, runs_of

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
) -> Float[Tensor, "num_tokens num_heads head_dim"]:
    """See the contract."""
    mixed: list[Tensor] = []
    for run in runs_of(req_of_token, positions, q.shape[1]):
        queries = q[run.start : run.end]
        own_positions = positions[run.start : run.end]
        own_choice = topk_blocks[run.start : run.end]
        table = page_table[run.req]
        mixed.append(_attend_run(run, queries, k_pages, v_pages, table, own_positions, own_choice).to(q.dtype))
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed) if mixed else torch.zeros_like(q)


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
    # -1 and blocks after every query of the run choose nothing.
    chosen = [choice for choice in topk_blocks.flatten().tolist() if 0 <= choice < num_index_blocks]
    union = sorted(set(chosen))
    if not union:
        return torch.zeros_like(queries, dtype=torch.float32)
    index_blocks = torch.tensor(union, device=queries.device)
    keys, values = load_pages((k_pages, v_pages), table.index_select(0, index_blocks))
    num_keys = len(keys)
    if union[-1] == num_index_blocks - 1:
        num_keys -= num_index_blocks * page_size - run.max_position - 1
    is_hidden: Tensor | None = None
    if run.min_position < run.max_position:
        columns = (index_blocks * page_size).unsqueeze(1) + torch.arange(page_size, device=queries.device)
        # [1, run tokens, num_keys]
        is_hidden = (columns.flatten()[:num_keys] > positions.unsqueeze(1)).unsqueeze(0)
    # Ids are unique within a list, so the count tells whether every query and head chose the whole union.
    if len(chosen) < len(union) * topk_blocks.shape[0] * topk_blocks.shape[1]:
        # [num_kv_heads, run tokens, len(union)]
        is_unchosen = (topk_blocks.unsqueeze(3) != index_blocks).all(2).transpose(0, 1)
        by_key = is_unchosen.unsqueeze(3).expand(-1, -1, -1, page_size).flatten(2)[:, :, :num_keys]
        is_hidden = by_key if is_hidden is None else by_key | is_hidden
    return attend_safely(queries, keys[:num_keys], values[:num_keys], is_hidden)
