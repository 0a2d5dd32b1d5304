"""The least bytes that a decode step of one rank must read, by component: what a measured time stands beside.

Weights and cache are counted, activations are not. Routed experts count once each when they are chosen; keys that
rows of one request share count once. The device's speed of reading is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.config.schema import TargetSpec
from slipstream.decode_targets.m3.sm90_nvfp4.weights import MixtureWeights, TargetWeights

READ_BYTES_PER_S = 4.3e12
"""What a copy reads and writes on one H200 (measured); the floor of a whole step divides by it."""

COMPONENTS = ("qkv_index", "o", "experts", "shared_and_dense", "router", "head", "index_score", "attention")


@dataclass(frozen=True, slots=True)
class Load:
    """What a step works on.

    Args:
        batch: requests.
        query_len: ladder rows of each.
        context: tokens of each request.
        num_experts_read: distinct experts that a layer reads, on average.
        blocks_per_request: distinct blocks that the rows of a request read in a sparse layer, per key-value head.
    """

    batch: int
    query_len: int
    context: int
    num_experts_read: float
    blocks_per_request: float


def expected_experts(num_experts: int, topk_experts: int, num_rows: int) -> float:
    """Return the distinct experts that rows read when each chooses on its own and uniformly."""
    return num_experts * (1.0 - (1.0 - topk_experts / num_experts) ** num_rows)


def floor_bytes(
    spec: TargetSpec, weights: TargetWeights, load: Load, *, num_kv_heads: int, kv_bytes: int
) -> dict[str, float]:
    """Return bytes per step and component.

    Args:
        spec: the network.
        weights: of this rank.
        load: what the step works on.
        num_kv_heads: of this rank.
        kv_bytes: bytes of a cached element.
    """
    totals: dict[str, float] = dict.fromkeys(COMPONENTS, 0.0)
    sparse = spec.sparse
    token_bytes = 2 * num_kv_heads * spec.head_dim * kv_bytes
    for layer, is_sparse in zip(weights.layers, spec.is_sparse_layer, strict=True):
        totals["qkv_index"] += layer.qkv.num_bytes
        totals["o"] += layer.o.num_bytes
        if isinstance(layer.mlp, MixtureWeights):
            totals["router"] += layer.mlp.router_weight.nbytes
            totals["experts"] += load.num_experts_read * layer.mlp.experts.expert_bytes
            totals["shared_and_dense"] += layer.mlp.shared_gate_up.num_bytes + layer.mlp.shared_down.num_bytes
        else:
            totals["shared_and_dense"] += layer.mlp.gate_up.num_bytes + layer.mlp.down.num_bytes
        if is_sparse and sparse is not None:
            totals["index_score"] += load.batch * load.context * sparse.index_head_dim * kv_bytes
            num_tokens = min(load.blocks_per_request * sparse.index_block_size, load.context)
            totals["attention"] += load.batch * num_tokens * token_bytes
        else:
            totals["attention"] += load.batch * load.context * token_bytes
    totals["head"] = float(weights.head.nbytes)
    return totals
