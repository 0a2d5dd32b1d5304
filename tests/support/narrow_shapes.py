"""A network with the real one's kinds of layers, narrow enough to run on a CPU in no time."""

from __future__ import annotations

import msgspec

from slipstream.config.schema import TargetSpec
from slipstream.profiling.shapes import real_spec


def narrow_spec(shape: str = "m3", num_layers: int = 5) -> TargetSpec:
    """Return the first layers of a released network, with widths that eight ranks can share."""
    spec = real_spec(shape, num_layers)
    assert spec.sparse is not None
    sparse = msgspec.structs.replace(spec.sparse, index_head_dim=32, index_block_size=16, topk_blocks=4)
    return msgspec.structs.replace(
        spec,
        hidden_size=256,
        num_heads=16,
        head_dim=32,
        rotary_dim=16,
        vocab_size=512,
        dense_intermediate_size=1024,
        expert_intermediate_size=1024,
        shared_intermediate_size=1024,
        num_experts=8,
        sparse=sparse,
    )
