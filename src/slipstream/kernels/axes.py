"""The one spelling of every axis, used in annotations, comments, cases and documents."""

from __future__ import annotations

from types import MappingProxyType

AXES = MappingProxyType(
    {
        "num_tokens": "query tokens of one call, over all requests",
        "num_reqs": "requests of one call",
        "num_heads": "heads of the operand named; query heads where queries and keys meet",
        "num_kv_heads": "key and value heads held by this rank",
        "head_dim": "width of one attention head",
        "rotary_dim": "leading part of a head that is rotated; the table holds cosines, then sines",
        "num_kinds": "distinct norm weights among the heads of one call",
        "max_positions": "rows of the rotary table",
        "num_pages": "pages of a pool; page 0 is the null page",
        "page_size": "tokens of a page, equal to the index block size",
        "max_pages": "columns of a page table: the capacity of one request",
        "num_index_heads": "index query heads held by this rank, one per key and value head",
        "index_head_dim": "width of an index query or key",
        "topk": "index blocks chosen per query token and key-value head",
        "hidden_size": "width of the residual stream",
        "num_experts": "routed experts",
        "topk_experts": "routed experts chosen per token",
        "intermediate_size": "width between the two projections of an expert, as held by this rank",
        "hidden_tiles": "packed tiles of 128 along the hidden axis",
        "intermediate_tiles": "packed tiles of 128 along the width between the two projections of an expert",
        "tile_words": "32-bit words of a packed tile: its codes, then its scales",
        "num_splits": "partial sums of a product whose inner axis is split, to be added in order",
        "in_features": "columns of a weight matrix",
        "out_features": "rows of a weight matrix",
        "in_units": "packed units of 64 along the columns of a matrix",
        "out_units": "packed units of 64 along the rows of a matrix",
        "in_chunks": "groups of four packed units along the columns, whose scales share a word",
        "unit_words": "16-bit words of a packed unit",
        "unit_rows": "rows of a packed unit",
        "width": "all columns of a fused projection, heads of every kind side by side",
    }
)
