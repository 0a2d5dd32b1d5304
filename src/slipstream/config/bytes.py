"""Exact byte accounts: which pools the paged cache has, what a page of each takes, and what is allocated beside them.

Planner, allocator and `explain` all read the one list that `build_geometry` makes, so a new pool cannot be forgotten
by any of them; what does not grow with the pages is in the one account that `fixed_bytes` makes. All numbers are exact
Python integers. Nothing here knows who owns a page, or allocates one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from slipstream.config.schema import CacheDType, DType, Eagle3Spec, TargetSpec

TARGET_GROUP = "target"
INDEX_GROUP = "index"
BYTES_OF_DTYPE: dict[str, int] = {"float32": 4, "bfloat16": 2, "float8_e4m3": 1}
_INT64_BYTES = 8
_INT32_BYTES = 4
_NUM_ROW_INT64 = 4  # computed tokens, last token, longest length, seed
_NUM_ROW_32_BIT = 4  # temperature, top_k, top_p, min_p
_ROW_FLAG_BYTES = 1  # is_rejection
_LOGIT_COPIES = 8
_FORBIDDEN_TOKENS = 64 * 16  # sequences of a request, and tokens of one


@dataclass(frozen=True, slots=True)
class PoolGeometry:
    """One pool: `num_layers` planes of `num_pages` pages, each page of shape `page_shape`.

    Args:
        name: unique; what the pool holds.
        group: the cache group whose page ids address it.
        num_layers: planes; layer l of the pool is plane l.
        page_shape: axes of one page of one plane.
        dtype: element type.
        is_per_token: the page holds one entry per token; False for one entry per page.
    """

    name: str
    group: str
    num_layers: int
    page_shape: tuple[int, ...]
    dtype: CacheDType
    is_per_token: bool = True

    @property
    def page_bytes(self) -> int:
        """Return the bytes of one page over all planes."""
        return self.num_layers * prod(self.page_shape) * BYTES_OF_DTYPE[self.dtype]


@dataclass(frozen=True, slots=True)
class CacheGeometry:
    """All pools of one rank."""

    page_size: int  # tokens
    num_pages: int  # per group, the null page included
    pools: tuple[PoolGeometry, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the cache groups in use, in a fixed order."""
        present = {pool.group for pool in self.pools}
        return tuple(group for group in (TARGET_GROUP, INDEX_GROUP) if group in present)

    @property
    def page_bytes(self) -> int:
        """Return the bytes of one page of every group together."""
        return sum(pool.page_bytes for pool in self.pools)

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all pools."""
        return self.num_pages * self.page_bytes

    def pool(self, name: str) -> PoolGeometry:
        """Return the pool called `name`; a StopIteration means a programming fault."""
        return next(pool for pool in self.pools if pool.name == name)

    def group_page_bytes(self, group: str) -> int:
        """Return the bytes of one page of one group."""
        return sum(pool.page_bytes for pool in self.pools if pool.group == group)

    def group_token_bytes(self, group: str) -> int:
        """Return the bytes that each token of one group takes; entries kept once per page are not counted."""
        pools = [pool for pool in self.pools if pool.group == group and pool.is_per_token]
        return sum(pool.page_bytes for pool in pools) // self.page_size


def build_geometry(
    *,
    target: TargetSpec,
    num_kv_heads: int,
    dtype: DType,
    kv_dtype: CacheDType | None = None,
    page_size: int,
    num_pages: int,
    num_draft_layers: int = 0,
    num_draft_kv_heads: int = 0,
    draft_head_dim: int = 0,
    tap_width: int = 0,
) -> CacheGeometry:
    """List the pools of one rank.

    Args:
        target: the target network.
        num_kv_heads: KV heads of this rank.
        dtype: element type of what a drafter keeps.
        kv_dtype: element type of the target's keys, values and index keys; None for that of the rest.
        page_size: tokens per page; equals the index block size where there is one.
        num_pages: pages per group, the null page included.
        num_draft_layers, num_draft_kv_heads, draft_head_dim: the drafter's own layers (EAGLE-3: one).
        tap_width: num_aux_layers * hidden_size; the tap at each page's last position is kept, 0 for no drafter taps.

    Returns:
        The geometry; pools in a fixed order.
    """
    pools: list[PoolGeometry] = []
    kv_dtype = kv_dtype or dtype
    kv_shape = (page_size, num_kv_heads, target.head_dim)
    for part in ("k", "v"):
        pools.append(PoolGeometry(f"target_{part}", TARGET_GROUP, target.num_layers, kv_shape, kv_dtype))
    if num_draft_layers:
        draft_shape = (page_size, num_draft_kv_heads, draft_head_dim)
        for part in ("k", "v"):
            pools.append(PoolGeometry(f"draft_{part}", TARGET_GROUP, num_draft_layers, draft_shape, dtype))
    if tap_width:
        pools.append(PoolGeometry("boundary_taps", TARGET_GROUP, 1, (tap_width,), dtype, is_per_token=False))
    num_sparse_layers = sum(target.is_sparse_layer)
    if target.sparse is not None and num_sparse_layers:
        index_shape = (page_size, target.sparse.index_head_dim)
        pools.append(PoolGeometry("index_k", INDEX_GROUP, num_sparse_layers, index_shape, kv_dtype))
    return CacheGeometry(page_size=page_size, num_pages=num_pages, pools=tuple(pools))


def kv_heads_per_rank(num_kv_heads: int, tp_size: int) -> int:
    """Return the KV heads that one rank holds; beyond one head per rank, heads are replicated."""
    return max(1, num_kv_heads // tp_size)


def cache_geometry(
    target: TargetSpec,
    eagle3: Eagle3Spec | None,
    *,
    dtype: DType,
    kv_dtype: CacheDType | None = None,
    page_size: int,
    num_pages: int,
    tp_size: int = 1,
) -> CacheGeometry:
    """List the pools of one rank of an engine with this target and this drafter.

    Args:
        target: the target network.
        eagle3: the EAGLE-3 head, or None for a drafter without a cache layer.
        dtype: element type of what a drafter keeps.
        kv_dtype: element type of the target's keys, values and index keys; None for that of the rest.
        page_size: tokens per page.
        num_pages: pages per group, the null page included.
        tp_size: tensor-parallel width.

    Returns:
        The geometry.
    """
    num_kv_heads = kv_heads_per_rank(target.num_kv_heads, tp_size)
    if eagle3 is None:
        return build_geometry(
            target=target,
            num_kv_heads=num_kv_heads,
            dtype=dtype,
            kv_dtype=kv_dtype,
            page_size=page_size,
            num_pages=num_pages,
        )
    return build_geometry(
        target=target,
        num_kv_heads=num_kv_heads,
        dtype=dtype,
        kv_dtype=kv_dtype,
        page_size=page_size,
        num_pages=num_pages,
        num_draft_layers=1,
        num_draft_kv_heads=kv_heads_per_rank(eagle3.num_kv_heads, tp_size),
        draft_head_dim=eagle3.head_dim,
        tap_width=len(eagle3.aux_layer_ids) * eagle3.target_hidden_size,
    )


def target_weight_bytes(target: TargetSpec, dtype: DType, tp_size: int = 1) -> int:
    """Return the bytes of all parameters of the target on one rank; the router is always float32.

    Args:
        target: the target network.
        dtype: of everything but the router.
        tp_size: ranks; norms, router and the index key are on all of them, the rest is cut.
    """
    wide = BYTES_OF_DTYPE["float32"]
    hidden, head = target.hidden_size, target.head_dim
    num_heads, num_kv_heads = target.num_heads // tp_size, kv_heads_per_rank(target.num_kv_heads, tp_size)
    attention = 2 * hidden * head * (num_heads + num_kv_heads) + 2 * head
    index = 0
    if target.sparse is not None:
        num_index_heads = kv_heads_per_rank(target.sparse.num_index_heads, tp_size)
        index = (num_index_heads + 1) * target.sparse.index_head_dim * hidden
        index += 2 * target.sparse.index_head_dim
    dense = 3 * hidden * target.dense_intermediate_size // tp_size
    expert, shared = target.expert_intermediate_size // tp_size, target.shared_intermediate_size // tp_size
    moe = 3 * hidden * (target.num_experts * expert + shared)
    router = target.num_experts * (hidden + 1)
    num_moe = sum(target.is_moe_layer)
    num_narrow = target.num_layers * (attention + 2 * hidden) + sum(target.is_sparse_layer) * index
    num_narrow += num_moe * moe + (target.num_layers - num_moe) * dense
    num_narrow += hidden + target.vocab_size // tp_size * hidden * (1 if target.tie_word_embeddings else 2)
    return num_narrow * BYTES_OF_DTYPE[dtype] + num_moe * router * wide


def drafter_weight_bytes(eagle3: Eagle3Spec | None, dtype: DType, tp_size: int = 1) -> int:
    """Return the most bytes that the weights of an EAGLE-3 head take on one rank; 0 without a head.

    Embedding, output head and vocabulary map are counted as the head's own. A head that shares the target's takes less
    by just those tables, which only its weights tell.

    Args:
        eagle3: the head, or None.
        dtype: of all but the vocabulary map, which is int64.
        tp_size: ranks; norms, the projection of the taps and the map are on all of them, the rest is cut.
    """
    if eagle3 is None:
        return 0
    hidden, head, num_taps = eagle3.hidden_size, eagle3.head_dim, len(eagle3.aux_layer_ids)
    num_heads, num_kv_heads = eagle3.num_heads // tp_size, kv_heads_per_rank(eagle3.num_kv_heads, tp_size)
    tap_width = num_taps * eagle3.target_hidden_size
    tables = (eagle3.vocab_size // tp_size + eagle3.draft_vocab_size // tp_size) * hidden
    norms = 4 * hidden + tap_width * (eagle3.norm_before_fc + eagle3.fc_norm)
    attention = 2 * hidden * head * (num_heads + 2 * num_kv_heads) + num_heads * head * hidden
    mlp = 3 * hidden * (eagle3.intermediate_size // tp_size)
    num_parameters = tables + norms + tap_width * hidden + attention + mlp
    return num_parameters * BYTES_OF_DTYPE[dtype] + eagle3.draft_vocab_size * _INT64_BYTES


def row_bytes(
    *,
    max_num_seqs: int,
    max_model_len: int,
    draft_len: int,
    tap_width: int,
    dtype: DType,
    probs_vocab_size: int = 0,
) -> int:
    """Return the bytes of the state that requests keep by row, the scratch row included.

    Args:
        max_num_seqs: requests that run at once.
        max_model_len: tokens of history that each row holds.
        draft_len: drafts that each row holds.
        tap_width: num_aux_layers * hidden_size of the target, 0 for a drafter without taps.
        dtype: of the taps.
        probs_vocab_size: the target's vocabulary when rows keep what drafts were drawn from, else 0.
    """
    per_row = _ROW_FLAG_BYTES + draft_len * probs_vocab_size * BYTES_OF_DTYPE["float32"]
    integers = (_NUM_ROW_INT64 + draft_len + max_model_len) * _INT64_BYTES
    per_row += integers + _NUM_ROW_32_BIT * _INT32_BYTES + tap_width * BYTES_OF_DTYPE[dtype]
    return (max_num_seqs + 1) * per_row


def page_table_bytes(*, num_groups: int, max_num_seqs: int, max_pages: int) -> int:
    """Return the bytes of the int32 page tables of all groups, the scratch row included."""
    return num_groups * (max_num_seqs + 1) * max_pages * _INT32_BYTES


def edit_row_bytes(*, max_num_seqs: int, vocab_size: int) -> int:
    """Return the bytes of what requests change in their logits, by row, the scratch row included.

    A row holds a float32 bias and an end-token flag per token of the vocabulary, forbidden sequences, penalties and two
    positions. A CPU allocates them with the first request that asks for such a change.
    """
    per_row = vocab_size * (BYTES_OF_DTYPE["float32"] + 1) + (_FORBIDDEN_TOKENS + 2) * _INT64_BYTES + 3 * _INT32_BYTES
    return (max_num_seqs + 1) * per_row


def rotary_table_bytes(target: TargetSpec, eagle3: Eagle3Spec | None, max_model_len: int) -> int:
    """Return the bytes of the float32 rotary tables of the target and of its head."""
    width = target.rotary_dim + (0 if eagle3 is None else eagle3.rotary_dim)
    return max_model_len * width * BYTES_OF_DTYPE["float32"]


def step_bytes(
    target: TargetSpec, *, max_num_seqs: int, draft_len: int, prefill_chunk_tokens: int, max_model_len: int
) -> int:
    """Return what a step's logits and block scores take at most, kept free on a GPU; not part of the exact account.

    Logits of the largest ladder batch exist up to eight times in float32 (edited, masked, filtered, normalised), and a
    prompt chunk has a score per index head and block. Activations of a chunk are not counted: the reserve has to do.

    Args:
        target: the target network.
        max_num_seqs: requests that run at once.
        draft_len: K of the longest rung.
        prefill_chunk_tokens: most prompt tokens of a step.
        max_model_len: longest request in tokens.
    """
    logits = max_num_seqs * (draft_len + 1) * target.vocab_size
    scores = 0
    if target.sparse is not None:
        num_blocks = -(-max_model_len // target.sparse.index_block_size)
        scores = prefill_chunk_tokens * target.sparse.num_index_heads * num_blocks
    return (_LOGIT_COPIES * logits + scores) * BYTES_OF_DTYPE["float32"]


class FixedBytes(NamedTuple):
    """What one rank allocates whatever the number of pages."""

    weights: int
    drafter_weights: int
    rotary_tables: int
    rows: int
    page_tables: int
    edit_rows: int

    @property
    def total(self) -> int:
        """Return all of them together."""
        return sum(self)


def fixed_bytes(
    target: TargetSpec,
    eagle3: Eagle3Spec | None,
    geometry: CacheGeometry,
    *,
    dtype: DType,
    max_num_seqs: int,
    max_model_len: int,
    draft_len: int,
    tp_size: int,
    keeps_draft_probs: bool = False,
) -> FixedBytes:
    """Account for everything but the pools.

    Args:
        target: the target network.
        eagle3: the EAGLE-3 head, or None.
        geometry: gives the page size and the groups; its num_pages is not read.
        dtype: of weights and activations.
        max_num_seqs: requests that run at once.
        max_model_len: longest request in tokens.
        draft_len: K of the longest rung.
        tp_size: tensor-parallel width.
        keeps_draft_probs: rows keep what drafts were drawn from, because requests may be verified by rejection.

    Returns:
        The account of one rank.
    """
    tap_width = 0 if eagle3 is None else len(eagle3.aux_layer_ids) * eagle3.target_hidden_size
    max_pages = -(-max_model_len // geometry.page_size)
    return FixedBytes(
        weights=target_weight_bytes(target, dtype, tp_size),
        drafter_weights=drafter_weight_bytes(eagle3, dtype, tp_size),
        rotary_tables=rotary_table_bytes(target, eagle3, max_model_len),
        rows=row_bytes(
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            draft_len=draft_len,
            tap_width=tap_width,
            dtype=dtype,
            probs_vocab_size=target.vocab_size if keeps_draft_probs and eagle3 is not None else 0,
        ),
        page_tables=page_table_bytes(num_groups=len(geometry.groups), max_num_seqs=max_num_seqs, max_pages=max_pages),
        edit_rows=edit_row_bytes(max_num_seqs=max_num_seqs, vocab_size=target.vocab_size),
    )
