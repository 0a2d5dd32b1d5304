"""The real networks as specifications, for runs with random weights. Not here: any checkpoint."""

from __future__ import annotations

from slipstream.base.errors import ConfigError
from slipstream.config.schema import SparseAttentionSpec, TargetSpec

_NUM_LAYERS = 60
_NUM_DENSE_MLPS = 3
NUM_FULL_ATTENTION_LAYERS = {"m3": 3, "m3.1": 0}
"""Leading layers with full attention, by shape."""


def real_spec(shape: str, num_layers: int = _NUM_LAYERS) -> TargetSpec:
    """Return a released network's text part.

    Args:
        shape: m3 or m3.1.
        num_layers: fewer than the network has make a quicker run; the first layers keep their kinds.

    Raises:
        ConfigError: another shape, or a number of layers that the network does not have.
    """
    if shape not in NUM_FULL_ATTENTION_LAYERS:
        raise ConfigError(f"shape={shape!r}: allowed are {', '.join(NUM_FULL_ATTENTION_LAYERS)}")
    if not 1 <= num_layers <= _NUM_LAYERS:
        raise ConfigError(f"num_layers={num_layers}: allowed are 1 to {_NUM_LAYERS}")
    num_full = NUM_FULL_ATTENTION_LAYERS[shape]
    return TargetSpec(
        hidden_size=6144,
        num_layers=num_layers,
        num_heads=64,
        num_kv_heads=4,
        head_dim=128,
        rotary_dim=64,
        rope_theta=5_000_000.0,
        rms_norm_eps=1e-6,
        vocab_size=200_064,
        max_position_embeddings=1_048_576,
        tie_word_embeddings=False,
        dense_intermediate_size=12_288,
        expert_intermediate_size=3072,
        shared_intermediate_size=3072,
        num_experts=128,
        topk_experts=4,
        num_shared_experts=1,
        routed_scaling_factor=2.0,
        has_routing_bias=True,
        swiglu_alpha=1.702,
        swiglu_limit=7.0,
        is_moe_layer=tuple(layer >= _NUM_DENSE_MLPS for layer in range(num_layers)),
        is_sparse_layer=tuple(layer >= num_full for layer in range(num_layers)),
        sparse=SparseAttentionSpec(
            num_index_heads=4,
            index_head_dim=128,
            index_block_size=128,
            topk_blocks=16,
            num_init_blocks=0,
            num_local_blocks=1,
        ),
        eos_token_ids=(200_020,),
    )
