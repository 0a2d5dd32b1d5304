from pathlib import Path
from typing import Any

import pytest

from slipstream.config.bytes import cache_geometry, kv_heads_per_rank, step_bytes, target_weight_bytes
from slipstream.config.checkpoint import read_target
from slipstream.config.drafter import read_eagle3
from slipstream.config.schema import TargetSpec
from support.tiny_checkpoints import tiny_eagle3_config, write_tiny_config

RELEASED: dict[str, Any] = dict(  # noqa: C408
    num_layers=60, hidden_size=6144, num_heads=64, num_kv_heads=4, head_dim=128, rotary_dim=64, vocab_size=200064,
    max_position_embeddings=1048576, dense_intermediate_size=12288, expert_intermediate_size=3072,
    shared_intermediate_size=3072, num_experts=128, topk_experts=4, index_head_dim=128, index_block_size=128,
    topk_blocks=16, moe=(0,) * 3 + (1,) * 57, sparse=(0,) * 3 + (1,) * 57,
)  # fmt: skip


@pytest.fixture
def m3(tmp_path: Path) -> TargetSpec:
    return read_target(write_tiny_config(tmp_path / "m3", **RELEASED))


@pytest.mark.parametrize(("tp_size", "token_bytes"), [(1, 137_472), (2, 76_032), (4, 45_312), (8, 45_312)])
def test_bytes_per_token_of_the_released_model(m3: TargetSpec, tp_size: int, token_bytes: int) -> None:
    geometry = cache_geometry(m3, None, dtype="bfloat16", page_size=128, num_pages=1, tp_size=tp_size)
    assert sum(geometry.group_token_bytes(group) for group in geometry.groups) == token_bytes
    assert geometry.page_bytes == token_bytes * 128


def test_parameters_of_the_released_model(m3: TargetSpec, tmp_path: Path) -> None:
    router = 57 * 128 * (6144 + 1)
    language = 427_040_140_160 - 631_185_920 - 234_381_312
    assert target_weight_bytes(m3, "bfloat16") == 2 * (language - router) + 4 * router
    all_sparse = read_target(write_tiny_config(tmp_path / "m31", **(RELEASED | {"sparse": (1,) * 60})))
    assert target_weight_bytes(all_sparse, "float32") - target_weight_bytes(m3, "float32") == 4 * (
        427_051_937_408 - 427_040_140_160
    )


def test_a_head_adds_its_layer_and_its_boundary_taps(tmp_path: Path) -> None:
    target = read_target(write_tiny_config(tmp_path / "target"))
    head = tmp_path / "head"
    write_tiny_config(head, tiny_eagle3_config(target))
    eagle3 = read_eagle3(head, target).spec
    bare = cache_geometry(target, None, dtype="float32", page_size=8, num_pages=3)
    full = cache_geometry(target, eagle3, dtype="float32", page_size=8, num_pages=3)
    assert [pool.name for pool in full.pools] == [
        "target_k", "target_v", "draft_k", "draft_v", "boundary_taps", "index_k",
    ]  # fmt: skip
    layer, taps = 2 * 8 * 2 * 16 * 4, 3 * 64 * 4
    assert full.group_page_bytes("target") == bare.group_page_bytes("target") + layer + taps
    assert full.group_page_bytes("index") == bare.group_page_bytes("index") == 3 * 8 * 16 * 4
    assert full.group_token_bytes("target") == (4 * 2 * 2 * 16 + 2 * 2 * 16) * 4
    assert full.total_bytes == 3 * (full.group_page_bytes("target") + full.group_page_bytes("index"))
    assert full.pool("boundary_taps").page_bytes == taps


def test_a_model_without_sparse_layers_has_one_group(tmp_path: Path) -> None:
    target = read_target(write_tiny_config(tmp_path, sparse=(0, 0, 0, 0)))
    geometry = cache_geometry(target, None, dtype="bfloat16", page_size=16, num_pages=1)
    assert geometry.groups == ("target",)


@pytest.mark.parametrize(("tp_size", "expected"), [(1, 4), (2, 2), (4, 1), (8, 1)])
def test_beyond_the_kv_heads_they_are_replicated(tp_size: int, expected: int) -> None:
    assert kv_heads_per_rank(4, tp_size) == expected


def test_the_largest_values_of_a_step_are_bounded(m3: TargetSpec) -> None:
    """Eight times the logits of 64 ladders of 4, and the scores of 8,192 tokens over the blocks of 300,000."""
    sizes = {"max_num_seqs": 64, "draft_len": 3, "prefill_chunk_tokens": 8192, "max_model_len": 300_000}
    assert step_bytes(m3, **sizes) == 8 * 64 * 4 * 200_064 * 4 + 8192 * 4 * 2344 * 4
    assert step_bytes(m3, **{**sizes, "draft_len": 7}) > step_bytes(m3, **sizes)
