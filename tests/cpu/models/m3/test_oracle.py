"""The network against transformers' own, on checkpoints in the released layout: logits and chosen blocks."""

from pathlib import Path
from typing import Any

import pytest
import torch

from support.m3_world import PagedCache, load_oracle, load_target, prompt, recorded_blocks, same_blocks
from support.tiny_checkpoints import make_tiny_checkpoint

TOLERANCE = 2e-4
NUM_TOKENS = 120

# topk 4 of up to 15 blocks of 8 tokens, so the choice matters from token 32 on.
CASES: dict[str, dict[str, Any]] = {
    "dense_then_sparse": {},
    "all_sparse": {"sparse": (1, 1, 1, 1)},
    "all_dense": {"sparse": (0, 0, 0, 0)},
    "three_dense_like_m3": {"num_layers": 5, "moe": (0, 0, 0, 1, 1), "sparse": (0, 0, 0, 1, 1)},
    "m31_schedule": {"num_layers": 5, "moe": (0, 0, 0, 1, 1), "sparse": (1, 1, 1, 1, 1)},
    "local_blocks_2": {"num_local_blocks": 2},
    "one_kv_head_group_8": {"num_heads": 8, "num_kv_heads": 1},
    "four_kv_heads_group_4": {"num_heads": 16, "num_kv_heads": 4},
    "group_16": {"num_heads": 32, "num_kv_heads": 2},
    "topk_above_visible": {"topk_blocks": 16},
    "topk_1": {"topk_blocks": 1},
    "low_clamp": {"swiglu_limit": 1.0},
    "big_blocks": {"index_block_size": 32, "topk_blocks": 2},
    "tied": {"tie_word_embeddings": True},
}


@pytest.mark.parametrize("name", CASES)
def test_logits_and_choices_equal_the_oracle(tmp_path: Path, name: str) -> None:
    geometry = CASES[name]
    folder = make_tiny_checkpoint(tmp_path / "model", seed=len(name), **geometry)
    model = load_target(folder)
    tokens = prompt(model.spec, NUM_TOKENS)
    expected, chosen = load_oracle(folder).run(tokens)
    page_size = geometry.get("index_block_size", 8)
    with recorded_blocks() as ours:
        logits = PagedCache(model, max_tokens=NUM_TOKENS, page_size=page_size).logits([(0, tokens)])
    assert 5.0 < expected.abs().max() < 60.0
    assert (logits - expected).abs().max() <= TOLERANCE
    assert len(ours) == len(chosen) == sum(model.spec.is_sparse_layer)
    for mine, theirs in zip(ours, chosen, strict=True):
        assert same_blocks(mine, theirs)


def test_the_blocks_are_really_a_choice(tmp_path: Path) -> None:
    """Guards the test above: heads, tokens and layers choose differently, and most blocks are left out."""
    folder = make_tiny_checkpoint(tmp_path / "model")
    model = load_target(folder)
    with recorded_blocks() as ours:
        PagedCache(model, max_tokens=NUM_TOKENS).logits([(0, prompt(model.spec, NUM_TOKENS))])
    last = torch.stack([layer[-40:] for layer in ours])  # [num_sparse_layers, 40, num_kv_heads, topk]
    assert (last[:, :, 0] != last[:, :, 1]).any()
    assert (last[0] != last[1]).any()
    assert len({tuple(row.tolist()) for row in last[0, :, 0]}) > 5


def test_the_released_block_geometry_beyond_the_budget(tmp_path: Path) -> None:
    """Blocks of 128 tokens, 16 of them chosen: the choice begins to matter after 2,048 tokens."""
    folder = make_tiny_checkpoint(
        tmp_path / "model", num_layers=2, index_block_size=128, topk_blocks=16, max_position_embeddings=4096
    )
    model = load_target(folder)
    tokens = prompt(model.spec, 2304)
    expected, chosen = load_oracle(folder).run(tokens)
    cache = PagedCache(model, max_tokens=2304, page_size=128)
    with recorded_blocks() as ours:
        logits = torch.cat([cache.logits([(0, tokens[:2000])]), cache.logits([(0, tokens[2000:])])])
    assert (logits - expected).abs().max() <= TOLERANCE
    assert same_blocks(torch.cat(ours), chosen[0])
    left_out = [set(range(17)) - set(row.tolist()) for row in chosen[0][2047:2050, 0]]
    assert [len(blocks) for blocks in left_out] == [1, 1, 1]
    assert same_blocks(torch.cat(ours)[2048:2049], chosen[0][2048:2049])
