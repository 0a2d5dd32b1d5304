"""Definition of `dense_attend`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.attention.paged import Run, attend_safely, load_pages, rows_of, runs_of

if TYPE_CHECKING:
    from jaxtyping import Float, Int32, Int64


def dense_attend(
    q: Float[Tensor, "num_tokens num_heads head_dim"],
    k_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    v_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    page_table: Int32[Tensor, "num_reqs max_pages"],
    req_of_token: Int64[Tensor, "num_tokens"],
    positions: Int64[Tensor, "num_tokens"],
    first_visible: int,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Float[Tensor, "num_tokens num_heads head_dim"]:
    """See the contract."""
    dtype = q.dtype
    q = q if k_scale == 1.0 else q.float() * k_scale
    mixed: list[Tensor] = []
    for run in runs_of(req_of_token, positions, q.shape[1]):
        queries, own_positions = rows_of(run, q, positions)
        table = page_table[run.req]
        part = _attend_run(run, queries, k_pages, v_pages, table, own_positions, first_visible)
        mixed.append((part if v_scale == 1.0 else part * v_scale).to(dtype))
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed) if mixed else torch.zeros_like(q, dtype=dtype)


def _attend_run(
    run: Run,
    queries: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    table: Tensor,
    positions: Tensor,
    first_visible: int,
) -> Tensor:
    """Return [run tokens, num_heads, head_dim] float32 attention of one run."""
    if run.max_position < first_visible:
        return torch.zeros_like(queries, dtype=torch.float32)
    page_size = k_pages.shape[1]
    first_page = first_visible // page_size
    page_ids = table[first_page : run.max_position // page_size + 1].tolist()
    base = first_page * page_size
    window = slice(first_visible - base, run.max_position + 1 - base)
    is_hidden: Tensor | None = None
    if run.min_position < run.max_position:
        columns = torch.arange(first_visible, run.max_position + 1, device=queries.device)
        # [1, run tokens, num_keys]
        is_hidden = (columns > positions.unsqueeze(1)).unsqueeze(0)
    keys, values = load_pages((k_pages, v_pages), page_ids)
    return attend_safely(queries, keys[window], values[window], is_hidden)
