"""Checks that the attention contracts share: shapes and dtypes, never values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from slipstream.base.errors import KernelError
from slipstream.kernels.faults import shape_fault


def check_addressing(
    operation: str, queries: Tensor, page_table: Tensor, req_of_token: Tensor, positions: Tensor
) -> None:
    """Raise ShapeError unless the addressing tensors fit the queries."""
    num_tokens = queries.shape[:1]
    if page_table.dim() != 2 or page_table.dtype != torch.int32:
        raise shape_fault(operation, "page_table", page_table, "[num_reqs, max_pages] int32")
    if req_of_token.shape != num_tokens or req_of_token.dtype != torch.int64:
        raise shape_fault(operation, "req_of_token", req_of_token, f"[{num_tokens[0]}] int64")
    if positions.shape != num_tokens or positions.dtype != torch.int64:
        raise shape_fault(operation, "positions", positions, f"[{num_tokens[0]}] int64")


def check_kv_pages(operation: str, q: Tensor, k_pages: Tensor, v_pages: Tensor) -> None:
    """Raise ShapeError unless keys and values have one shape and the queries' heads divide into theirs."""
    if q.dim() != 3 or k_pages.dim() != 4 or q.shape[2] != k_pages.shape[3] or q.shape[1] % k_pages.shape[2]:
        kv_heads = k_pages.shape[2] if k_pages.dim() == 4 else "?"
        allowed = f"[num_tokens, a multiple of {kv_heads}, {k_pages.shape[-1]}] for these k_pages"
        raise shape_fault(operation, "q", q, allowed)
    if v_pages.shape != k_pages.shape or v_pages.dtype != k_pages.dtype:
        raise shape_fault(operation, "v_pages", v_pages, f"{list(k_pages.shape)} {k_pages.dtype}, as k_pages")


def check_scales(operation: str, k_pages: Tensor, k_scale: float, v_scale: float) -> None:
    """Raise KernelError unless scales are positive numbers, and 1 where pages hold the values themselves."""
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        is_plain = k_pages.dtype != torch.float8_e4m3fn
        if not math.isfinite(scale) or scale <= 0 or (is_plain and scale != 1):
            dtype = str(k_pages.dtype).removeprefix("torch.")
            allowed = "1" if is_plain else "a finite number above 0"
            raise KernelError(f"{operation}: {name} is {scale} for {dtype} pages, allowed is {allowed}")
