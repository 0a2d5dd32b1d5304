from __future__ import annotations

import pytest
import torch

from slipstream.decode_targets.m3.sm90_nvfp4.random_weights import RandomWeights
from slipstream.profiling.floors import COMPONENTS, Load, expected_experts, floor_bytes
from slipstream.profiling.rank_slice import slice_spec
from support.narrow_shapes import narrow_spec

SPEC, SIZES = slice_spec(narrow_spec(), 8)
WEIGHTS = RandomWeights(SPEC, SIZES, torch.device("cpu")).make(64)


def floors(**changes):
    load = {"batch": 2, "query_len": 4, "context": 160, "num_experts_read": 3.0, "blocks_per_request": 5.0}
    return floor_bytes(SPEC, WEIGHTS, Load(**{**load, **changes}), num_kv_heads=1, kv_bytes=1)


def test_the_published_counts_of_distinct_experts():
    """128 experts, 4 of them per row: 15.3 at 4 rows, 28.7 at 8, 81.7 at 32."""
    found = [expected_experts(128, 4, rows) for rows in (1, 4, 8, 32)]
    assert found == pytest.approx([4.0, 15.3, 28.7, 81.7], abs=0.06)


def test_every_weight_of_a_layer_is_counted_once():
    found = floors(num_experts_read=8.0)
    assert tuple(found) == COMPONENTS
    layers = WEIGHTS.layers
    assert found["qkv_index"] == sum(layer.qkv.num_bytes for layer in layers)
    assert found["o"] == sum(layer.o.num_bytes for layer in layers)
    mixtures = [layer.mlp for layer in layers if hasattr(layer.mlp, "experts")]
    assert found["experts"] == sum(mlp.experts.w13.nbytes + mlp.experts.w2.nbytes for mlp in mixtures)
    assert found["head"] == WEIGHTS.head.nbytes


def test_the_cache_grows_with_what_is_read_of_it():
    one, twice = floors(), floors(batch=4)
    assert twice["index_score"] == 2 * one["index_score"] == 2 * 2 * 2 * 160 * 32
    # Three layers read everything, two read five blocks of 16 tokens.
    assert one["attention"] == 2 * (3 * 160 + 2 * 5 * 16) * 2 * 32
    assert floors(blocks_per_request=99.0)["attention"] == 2 * 5 * 160 * 2 * 32
