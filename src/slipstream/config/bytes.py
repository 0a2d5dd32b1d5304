"""Exact byte accounts: which pools the paged cache has, what a page of each takes, and what the weights take.

Planner, allocator and `explain` all read the one list that `build_geometry` makes, so a new pool cannot be forgotten
by any of them. All numbers are exact Python integers. Nothing here knows who owns a page, or allocates one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from slipstream.config.schema import DType, Eagle3Spec, TargetSpec

TARGET_GROUP = "target"
INDEX_GROUP = "index"
BYTES_OF_DTYPE: dict[str, int] = {"float32": 4, "bfloat16": 2}


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
    dtype: DType
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
        dtype: element type of all pools.
        page_size: tokens per page; equals the index block size where there is one.
        num_pages: pages per group, the null page included.
        num_draft_layers, num_draft_kv_heads, draft_head_dim: the drafter's own layers (EAGLE-3: one).
        tap_width: num_aux_layers * hidden_size; the tap at each page's last position is kept, 0 for no drafter taps.

    Returns:
        The geometry; pools in a fixed order.
    """
    pools: list[PoolGeometry] = []
    kv_shape = (page_size, num_kv_heads, target.head_dim)
    for part in ("k", "v"):
        pools.append(PoolGeometry(f"target_{part}", TARGET_GROUP, target.num_layers, kv_shape, dtype))
    if num_draft_layers:
        draft_shape = (page_size, num_draft_kv_heads, draft_head_dim)
        for part in ("k", "v"):
            pools.append(PoolGeometry(f"draft_{part}", TARGET_GROUP, num_draft_layers, draft_shape, dtype))
    if tap_width:
        pools.append(PoolGeometry("boundary_taps", TARGET_GROUP, 1, (tap_width,), dtype, is_per_token=False))
    num_sparse_layers = sum(target.is_sparse_layer)
    if target.sparse is not None and num_sparse_layers:
        index_shape = (page_size, target.sparse.index_head_dim)
        pools.append(PoolGeometry("index_k", INDEX_GROUP, num_sparse_layers, index_shape, dtype))
    return CacheGeometry(page_size=page_size, num_pages=num_pages, pools=tuple(pools))


def kv_heads_per_rank(num_kv_heads: int, tp_size: int) -> int:
    """Return the KV heads that one rank holds; beyond one head per rank, heads are replicated."""
    return max(1, num_kv_heads // tp_size)


def cache_geometry(
    target: TargetSpec,
    eagle3: Eagle3Spec | None,
    *,
    dtype: DType,
    page_size: int,
    num_pages: int,
    tp_size: int = 1,
) -> CacheGeometry:
    """List the pools of one rank of an engine with this target and this drafter.

    Args:
        target: the target network.
        eagle3: the EAGLE-3 head, or None for a drafter without a cache layer.
        dtype: element type of all pools.
        page_size: tokens per page.
        num_pages: pages per group, the null page included.
        tp_size: tensor-parallel width.

    Returns:
        The geometry.
    """
    num_kv_heads = kv_heads_per_rank(target.num_kv_heads, tp_size)
    if eagle3 is None:
        return build_geometry(
            target=target, num_kv_heads=num_kv_heads, dtype=dtype, page_size=page_size, num_pages=num_pages
        )
    return build_geometry(
        target=target,
        num_kv_heads=num_kv_heads,
        dtype=dtype,
        page_size=page_size,
        num_pages=num_pages,
        num_draft_layers=1,
        num_draft_kv_heads=kv_heads_per_rank(eagle3.num_kv_heads, tp_size),
        draft_head_dim=eagle3.head_dim,
        tap_width=len(eagle3.aux_layer_ids) * eagle3.target_hidden_size,
    )


def target_weight_bytes(target: TargetSpec, dtype: DType) -> int:
    """Return the bytes of all parameters of the target on one rank of one; the router is always float32."""
    wide = BYTES_OF_DTYPE["float32"]
    hidden, head = target.hidden_size, target.head_dim
    attention = 2 * hidden * head * (target.num_heads + target.num_kv_heads) + 2 * head
    index = 0
    if target.sparse is not None:
        index = (target.sparse.num_index_heads + 1) * target.sparse.index_head_dim * hidden
        index += 2 * target.sparse.index_head_dim
    dense = 3 * hidden * target.dense_intermediate_size
    moe = 3 * hidden * (target.num_experts * target.expert_intermediate_size + target.shared_intermediate_size)
    router = target.num_experts * (hidden + 1)
    num_moe = sum(target.is_moe_layer)
    num_narrow = target.num_layers * (attention + 2 * hidden) + sum(target.is_sparse_layer) * index
    num_narrow += num_moe * moe + (target.num_layers - num_moe) * dense
    num_narrow += hidden + target.vocab_size * hidden * (1 if target.tie_word_embeddings else 2)
    return num_narrow * BYTES_OF_DTYPE[dtype] + num_moe * router * wide
