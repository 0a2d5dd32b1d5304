from __future__ import annotations

import dataclasses

import pytest
import torch

from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.layers.attention_dense import DenseAttention
from slipstream.parallel.group import one_rank
from support.attention_oracle import attention
from support.layer_jobs import GEOMETRY, HIDDEN, PAGE_SIZE, PLACE, ROPE_TABLE, make_addressing, make_hidden, make_pools
from support.layer_parts import fill, make_full

TOLERANCE = {"atol": 1e-5}


def make_layer(geometry=GEOMETRY, **options):
    layer = DenseAttention(geometry, 1e-6, group=one_rank(), **PLACE, **options)
    full = make_full(layer)
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


@pytest.mark.parametrize("pieces", [[30], [1] * 30, [13, 17], [24, 6]])
@pytest.mark.parametrize("use_qk_norm", [True, False])
def test_prefill_chunks_decode_and_ladders_match_the_oracle(pieces, use_qk_norm):
    layer, full = make_layer(use_qk_norm=use_qk_norm)
    assert (layer.qk_norm is None) is not use_qk_norm
    inputs, num_pages = make_addressing((30,), (30,))
    x, pools = make_hidden(30), make_pools(num_pages)[:2]
    results, start = [], 0
    for size in pieces:
        tokens = torch.arange(start, start + size)
        results.append(layer(x[tokens], part_of(inputs, tokens), *pools, ROPE_TABLE))
        start += size
    assert torch.allclose(torch.cat(results).double(), attention(x, full, is_sparse=False), **TOLERANCE)


def test_padding_is_zero_and_writes_nothing():
    layer, full = make_layer()
    inputs, num_pages = make_addressing((9,), (9,), num_padding=2)
    x, pools = make_hidden(11), make_pools(num_pages)[:2]
    x[9:] = float("nan")
    result = layer(x, inputs, *pools, ROPE_TABLE)
    assert torch.allclose(result[:9].double(), attention(x[:9], full, is_sparse=False), **TOLERANCE)
    assert not result[9:].any()
    for pages in pools:
        assert int(pages.view(num_pages * PAGE_SIZE, -1).isfinite().all(1).sum()) == 9


def test_draft_rows_are_stored_by_token():
    """Rows from position 1 on, rotated by the position before; slot 0 is never read; the input is wider."""
    geometry = dataclasses.replace(GEOMETRY, input_size=2 * HIDDEN)
    layer, full = make_layer(geometry, use_qk_norm=False, first_visible=1)
    inputs, num_pages = make_addressing((20,), (20,))
    x = torch.cat([make_hidden(20), make_hidden(20, seed=3)], dim=1)
    pools = make_pools(num_pages)[:2]
    tokens = torch.arange(1, 20)
    turns = torch.arange(20) - 1
    result = layer(x[1:], part_of(inputs, tokens), *pools, ROPE_TABLE, turns[1:])
    expected = attention(x, full, is_sparse=False, first_visible=1, rope_positions=turns)
    assert torch.allclose(result.double(), expected[1:], **TOLERANCE)
    assert pools[0][int(inputs.page_table[0, 0]), 0].isnan().all(), "position 0 has no row"


@pytest.mark.parametrize("use_qk_norm", [True, False])
def test_storing_is_the_writing_half_of_a_forward(use_qk_norm):
    layer, _ = make_layer(use_qk_norm=use_qk_norm)
    inputs, num_pages = make_addressing((9, 4), (9, 4), num_padding=1)
    x = make_hidden(14)
    turns = inputs.positions + 2
    by_forward, by_store = make_pools(num_pages)[:2], make_pools(num_pages)[:2]
    layer(x, inputs, *by_forward, ROPE_TABLE, turns)
    assert layer.store(x, inputs, *by_store, ROPE_TABLE, turns) is None
    for one, other in zip(by_forward, by_store, strict=True):
        assert torch.allclose(one, other, atol=1e-6, equal_nan=True)


def test_without_other_positions_tokens_rotate_by_their_own():
    layer, _ = make_layer()
    inputs, num_pages = make_addressing((9,), (9,))
    one, other = make_pools(num_pages)[:2], make_pools(num_pages)[:2]
    assert torch.equal(
        layer(make_hidden(9), inputs, *one, ROPE_TABLE),
        layer(make_hidden(9), inputs, *other, ROPE_TABLE, inputs.positions),
    )
    layer.store(make_hidden(9), inputs, *other, ROPE_TABLE)
    assert torch.allclose(one[0], other[0], atol=1e-6, equal_nan=True)
