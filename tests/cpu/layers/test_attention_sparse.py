from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.layers.attention_sparse import SparseAttention
from slipstream.parallel.group import one_rank
from support.attention_oracle import attention
from support.layer_jobs import (
    GEOMETRY,
    INDEX,
    PAGE_SIZE,
    PLACE,
    ROPE_TABLE,
    make_addressing,
    make_hidden,
    make_pools,
)
from support.layer_parts import fill, make_full

TOLERANCE = {"atol": 1e-5}


def make_layer(index=INDEX, seed=0):
    layer = SparseAttention(GEOMETRY, index, 1e-6, group=one_rank(), **PLACE)
    full = make_full(layer, seed)
    return fill(layer, full), full


def part_of(inputs, tokens):
    return AttentionInputs(
        inputs.positions[tokens],
        inputs.req_of_token[tokens],
        inputs.page_table,
        inputs.slot_mapping[tokens],
        inputs.index_page_table,
        inputs.index_slot_mapping[tokens],
    )


def run_in_pieces(layer, x, inputs, num_pages, pieces):
    """Run the tokens piece by piece over the same pools and return all results in token order."""
    pools = make_pools(num_pages)
    with torch.inference_mode():
        return torch.cat([layer(x[piece], part_of(inputs, piece), *pools, ROPE_TABLE) for piece in pieces]), pools


def pieces_of(num_tokens, sizes):
    starts = [0]
    for size in sizes:
        starts.append(min(starts[-1] + size, num_tokens))
    assert starts[-1] == num_tokens
    return [torch.arange(a, b) for a, b in itertools.pairwise(starts)]


@pytest.mark.parametrize("seq_len", [1, 4, 12, 13, 45])
def test_a_prompt_matches_the_oracle(seq_len):
    """Below, at and beyond topk blocks (3 of 4 tokens)."""
    layer, full = make_layer()
    inputs, num_pages = make_addressing((seq_len,), (seq_len,))
    x = make_hidden(seq_len)
    result, _ = run_in_pieces(layer, x, inputs, num_pages, [torch.arange(seq_len)])
    assert torch.allclose(result.double(), attention(x, full, is_sparse=True), **TOLERANCE)


def test_the_oracle_s_choice_matters():
    _, full = make_layer()
    x = make_hidden(45)
    sparse, dense = (attention(x, full, is_sparse=flag) for flag in (True, False))
    assert torch.allclose(sparse[:12], dense[:12])
    assert (sparse[12:] - dense[12:]).abs().max() > 0.05


@pytest.mark.parametrize(
    "sizes",
    [[45], [1] * 45, [20, 25], [16, 16, 13], [30, *[5] * 3], [39, 6]],
    ids=["whole", "one_by_one", "chunks", "page_sized_chunks", "prompt_then_ladders", "ladder_over_an_edge"],
)
def test_prefill_decode_and_verify_follow_one_rule(sizes):
    layer, full = make_layer()
    inputs, num_pages = make_addressing((45,), (45,))
    x = make_hidden(45)
    result, _ = run_in_pieces(layer, x, inputs, num_pages, pieces_of(45, sizes))
    assert torch.allclose(result.double(), attention(x, full, is_sparse=True), **TOLERANCE)


def test_requests_of_a_batch_do_not_meet():
    layer, full = make_layer()
    seq_lens = (38, 1, 9)
    inputs, num_pages = make_addressing(seq_lens, seq_lens, num_padding=3)
    x = make_hidden(sum(seq_lens) + 3)
    x[-3:] = float("nan")
    result, _ = run_in_pieces(layer, x, inputs, num_pages, [torch.arange(len(x))])
    start = 0
    for seq_len in seq_lens:
        own = x[start : start + seq_len]
        expected = attention(own, full, is_sparse=True)
        assert torch.allclose(result[start : start + seq_len].double(), expected, **TOLERANCE)
        start += seq_len
    assert not result[-3:].any()


def test_rejected_drafts_leave_nothing_behind():
    """A ladder with wrong drafts, then the right tokens at the same positions."""
    layer, full = make_layer()
    inputs, num_pages = make_addressing((40,), (40,))
    x = make_hidden(40)
    pools = make_pools(num_pages)
    wrong = make_hidden(6, seed=9)
    with torch.inference_mode():
        layer(x[:34], part_of(inputs, torch.arange(34)), *pools, ROPE_TABLE)
        layer(torch.cat([x[34:35], wrong[:5]]), part_of(inputs, torch.arange(34, 40)), *pools, ROPE_TABLE)
        result = layer(x[35:40], part_of(inputs, torch.arange(35, 40)), *pools, ROPE_TABLE)
    assert torch.allclose(result.double(), attention(x, full, is_sparse=True)[35:], **TOLERANCE)


def test_index_keys_are_written_for_every_token_of_a_short_prompt():
    """All blocks are chosen there without a look at them, and later tokens need them all the same."""
    layer, _ = make_layer()
    inputs, num_pages = make_addressing((7,), (7,))
    _, (k_pages, v_pages, index_k_pages) = run_in_pieces(layer, make_hidden(7), inputs, num_pages, [torch.arange(7)])
    for pages, slots in (
        (k_pages, inputs.slot_mapping),
        (v_pages, inputs.slot_mapping),
        (index_k_pages, inputs.index_slot_mapping),
    ):
        flat = pages.view(num_pages * PAGE_SIZE, -1)
        assert flat[slots].isfinite().all()
        others = torch.ones(len(flat), dtype=torch.bool)
        others[slots] = False
        assert flat[others].isnan().all(), "nothing else may be written"


def test_the_two_cache_groups_have_their_own_pages():
    """So the tests above would see a layer that reads or writes one through the table of the other."""
    inputs, _ = make_addressing((45,), (45,))
    assert not torch.equal(inputs.page_table, inputs.index_page_table)
    assert not torch.equal(inputs.slot_mapping, inputs.index_slot_mapping)


def test_forced_blocks_are_passed_on():
    """With every block forced in by `num_local_blocks`, the choice is the latest three."""
    index = dataclasses.replace(INDEX, num_local_blocks=3)
    layer, full = make_layer(index)
    inputs, num_pages = make_addressing((45,), (45,))
    x = make_hidden(45)
    result, _ = run_in_pieces(layer, x, inputs, num_pages, [torch.arange(45)])
    changed = x.clone()
    changed[:28] = make_hidden(28, seed=5)
    moved, _ = run_in_pieces(layer, changed, inputs, num_pages, [torch.arange(45)])
    assert torch.allclose(result[44], moved[44], **TOLERANCE)
    assert full["qkv_proj", "index_k"].shape[0] == INDEX.index_head_dim


def test_geometry_that_cannot_be_served_is_refused():
    with pytest.raises(ConfigError, match="index_head_dim = 8, head_dim = 16"):
        make_layer(dataclasses.replace(INDEX, index_head_dim=8))
    with pytest.raises(ConfigError, match="num_index_heads = 1, num_kv_heads = 2"):
        make_layer(dataclasses.replace(INDEX, num_index_heads=1))
