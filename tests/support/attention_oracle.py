"""Attention layers written out over one whole request: float64 loops, no pages of their own, no runs, no ranks."""

from __future__ import annotations

import torch

from support import oracles
from support.layer_jobs import HEAD_DIM, HEADS, INDEX, KV_HEADS, PAGE_SIZE, ROPE_TABLE

EPS = 1e-6


def project(x, full, name, num_heads):
    return (x.double() @ full["qkv_proj", name].double().T).view(len(x), num_heads, HEAD_DIM)


def norm_and_rotate(heads, full, name, positions):
    kinds = torch.zeros(heads.shape[1], dtype=torch.int64)
    weight = full["qk_norm", name].unsqueeze(0) if ("qk_norm", name) in full else None
    return oracles.qk_norm_rope(heads, weight, kinds, EPS, True, ROPE_TABLE, positions)


def as_pages(tokens):
    """Return a request's tokens as pages in order, the rest of the last one NaN, and the table that says so."""
    num_pages = -(-len(tokens) // PAGE_SIZE)
    pages = torch.full((num_pages * PAGE_SIZE, *tokens.shape[1:]), float("nan"), dtype=torch.float64)
    pages[: len(tokens)] = tokens
    return pages.view(num_pages, PAGE_SIZE, *tokens.shape[1:]), torch.arange(num_pages).unsqueeze(0)


def attention(x, full, *, is_sparse, first_visible=0, rope_positions=None):
    """Return [num_tokens, hidden_size] float64 of a request whose tokens are x, positions 0 on."""
    positions = torch.arange(len(x))
    turns = positions if rope_positions is None else rope_positions
    q = norm_and_rotate(project(x, full, "q", HEADS), full, "q", turns)
    k_pages, table = as_pages(norm_and_rotate(project(x, full, "k", KV_HEADS), full, "k", turns))
    v_pages, _ = as_pages(project(x, full, "v", KV_HEADS))
    reqs = torch.zeros(len(x), dtype=torch.int64)
    if is_sparse:
        index_q = norm_and_rotate(project(x, full, "index_q", KV_HEADS), full, "index_q", turns)
        index_k = norm_and_rotate(project(x, full, "index_k", 1), full, "index_k", turns)
        index_pages, _ = as_pages(index_k.squeeze(1))
        rules = (INDEX.topk, INDEX.num_init_blocks, INDEX.num_local_blocks)
        chosen = oracles.choose_blocks(index_q, index_pages, table, reqs, positions, *rules)
        mixed = oracles.sparse_attend(q, k_pages, v_pages, table, reqs, positions, chosen)
    else:
        mixed = oracles.dense_attend(q, k_pages, v_pages, table, reqs, positions, first_visible)
    return mixed.flatten(1) @ full["o_proj", ""].double().T
