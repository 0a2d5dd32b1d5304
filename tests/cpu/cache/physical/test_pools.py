"""Pools: complete, exact in bytes; views share the arena; poison stays where it is told."""

import pytest
import torch

from slipstream.cache.physical.pools import PagePools
from slipstream.config.bytes import INDEX_GROUP, TARGET_GROUP, CacheGeometry, build_geometry
from slipstream.config.schema import SparseAttentionSpec, TargetSpec

CPU = torch.device("cpu")


def target_spec(num_sparse: int = 2) -> TargetSpec:
    return TargetSpec(
        hidden_size=32,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        rotary_dim=4,
        rope_theta=1e4,
        rms_norm_eps=1e-6,
        vocab_size=64,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        dense_intermediate_size=16,
        expert_intermediate_size=8,
        shared_intermediate_size=8,
        num_experts=4,
        topk_experts=2,
        num_shared_experts=1,
        routed_scaling_factor=2.0,
        has_routing_bias=True,
        swiglu_alpha=1.702,
        swiglu_limit=7.0,
        is_moe_layer=(False, True, True),
        is_sparse_layer=(False,) * (3 - num_sparse) + (True,) * num_sparse,
        sparse=SparseAttentionSpec(
            num_index_heads=2,
            index_head_dim=8,
            index_block_size=4,
            topk_blocks=2,
            num_init_blocks=0,
            num_local_blocks=1,
        )
        if num_sparse
        else None,
        eos_token_ids=(1,),
    )


def geometry(dtype: str = "float32", *, num_sparse: int = 2, with_drafter: bool = True) -> CacheGeometry:
    return build_geometry(
        target=target_spec(num_sparse),
        num_kv_heads=2,
        dtype=dtype,
        page_size=4,
        num_pages=5,
        num_draft_layers=1 if with_drafter else 0,
        num_draft_kv_heads=2,
        draft_head_dim=8,
        tap_width=96 if with_drafter else 0,
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("with_drafter", [True, False])
def test_the_account_equals_what_is_allocated(dtype: str, with_drafter: bool) -> None:
    account = geometry(dtype, with_drafter=with_drafter)
    assert PagePools(account, CPU).num_bytes == account.total_bytes


def test_bytes_by_hand() -> None:
    pools = {pool.name: pool.page_bytes for pool in geometry().pools}
    assert pools == {
        "target_k": 3 * 4 * 2 * 8 * 4,
        "target_v": 3 * 4 * 2 * 8 * 4,
        "draft_k": 1 * 4 * 2 * 8 * 4,
        "draft_v": 1 * 4 * 2 * 8 * 4,
        "boundary_taps": 96 * 4,
        "index_k": 2 * 4 * 8 * 4,
    }


def test_every_pool_belongs_to_a_group() -> None:
    account = geometry()
    assert account.groups == (TARGET_GROUP, INDEX_GROUP)
    assert {pool.group for pool in account.pools} == set(account.groups)
    assert geometry(num_sparse=0).groups == (TARGET_GROUP,)


def test_layer_views_share_the_arena() -> None:
    pools = PagePools(geometry(), CPU)
    pools.layer("target_k", 1)[3, 2] = 7.0
    assert pools.layer("target_k", 1)[3, 2].eq(7.0).all()
    assert pools.layer("target_k", 0).eq(0).all()
    assert pools.layer("boundary_taps", 0).shape == (5, 96)
    assert pools.has("index_k")
    assert not pools.has("host")


def test_poison_starts_at_the_null_page_and_stays_in_its_group() -> None:
    pools = PagePools(geometry(), CPU, poison=True)
    for name in ("target_k", "draft_v", "boundary_taps", "index_k"):
        assert pools.layer(name, 0)[0].isnan().all()
        assert pools.layer(name, 0)[1:].eq(0).all()
    pools.poison_pages("index", [2, 3])
    assert pools.layer("index_k", 1)[2:4].isnan().all()
    assert pools.layer("target_k", 1)[2:4].eq(0).all()
