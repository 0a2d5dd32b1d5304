from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError
from slipstream.config.bytes import cache_geometry, target_weight_bytes
from slipstream.profiling.shapes import real_spec


@pytest.mark.parametrize(("shape", "num_sparse"), [("m3", 57), ("m3.1", 60)])
def test_the_kinds_of_layers(shape, num_sparse):
    spec = real_spec(shape)
    assert (sum(spec.is_sparse_layer), sum(spec.is_moe_layer), spec.num_layers) == (num_sparse, 57, 60)
    assert real_spec(shape, 4).is_moe_layer == (False, False, False, True)


def test_the_published_counts_come_out():
    """426 billion parameters; 137,472 bytes of bfloat16 cache per token."""
    spec = real_spec("m3")
    assert 425e9 < target_weight_bytes(spec, "bfloat16") / 2 < 428e9
    geometry = cache_geometry(spec, None, dtype="bfloat16", page_size=128, num_pages=1)
    assert geometry.page_bytes == 137_472 * 128
    halved = cache_geometry(spec, None, dtype="bfloat16", kv_dtype="float8_e4m3", page_size=128, num_pages=1)
    assert halved.page_bytes * 2 == geometry.page_bytes


@pytest.mark.parametrize(("shape", "num_layers"), [("m4", 60), ("m3", 0), ("m3", 61)])
def test_others_are_refused(shape, num_layers):
    with pytest.raises(ConfigError, match="allowed are"):
        real_spec(shape, num_layers)
