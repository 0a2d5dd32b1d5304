"""Sizes of the M3 network, as its layers and as one rank want them. Integer arithmetic; no tensors."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.base.errors import ConfigError
from slipstream.config.schema import TargetSpec
from slipstream.layers.attention_dense import AttentionGeometry
from slipstream.layers.attention_sparse import IndexGeometry
from slipstream.layers.moe import MoeGeometry
from slipstream.parallel.mesh import Mesh


@dataclass(frozen=True, slots=True)
class RankSizes:
    """What one rank holds of each axis that is cut.

    Args:
        num_heads: query heads.
        num_kv_heads: key-value heads; replicated when there are more ranks than heads.
        num_index_heads: index query heads; 0 without sparse layers. The index key is whole on every rank.
        dense_columns, expert_columns, shared_columns: inner widths of the MLPs.
        vocab_rows: rows of embedding and head.
    """

    num_heads: int
    num_kv_heads: int
    num_index_heads: int
    dense_columns: int
    expert_columns: int
    shared_columns: int
    vocab_rows: int


def rank_sizes(spec: TargetSpec, mesh: Mesh) -> RankSizes:
    """Return one rank's share of every axis.

    Raises:
        ConfigError: an axis does not divide among the ranks.
    """
    num_index_heads = 0
    if spec.sparse is not None:
        num_index_heads = len(mesh.index_heads(spec.sparse.num_index_heads, spec.num_kv_heads))
    return RankSizes(
        num_heads=len(mesh.query_heads(spec.num_heads, spec.num_kv_heads)),
        num_kv_heads=len(mesh.kv_heads(spec.num_kv_heads)),
        num_index_heads=num_index_heads,
        dense_columns=len(mesh.columns(spec.dense_intermediate_size, "dense_intermediate_size")),
        expert_columns=len(mesh.columns(spec.expert_intermediate_size, "expert_intermediate_size")),
        shared_columns=len(mesh.columns(spec.shared_intermediate_size, "shared_intermediate_size")),
        vocab_rows=len(mesh.vocabulary(spec.vocab_size)),
    )


def attention_geometry(spec: TargetSpec) -> AttentionGeometry:
    """Return the main branch of every layer."""
    return AttentionGeometry(
        input_size=spec.hidden_size,
        hidden_size=spec.hidden_size,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        rotary_dim=spec.rotary_dim,
    )


def index_geometry(spec: TargetSpec) -> IndexGeometry:
    """Return the index branch of the sparse layers.

    Raises:
        ConfigError: the network has no sparse layer.
    """
    if spec.sparse is None:
        raise ConfigError("the network has no sparse layer, so it has no index branch")
    return IndexGeometry(
        num_index_heads=spec.sparse.num_index_heads,
        index_head_dim=spec.sparse.index_head_dim,
        topk=spec.sparse.topk_blocks,
        num_init_blocks=spec.sparse.num_init_blocks,
        num_local_blocks=spec.sparse.num_local_blocks,
    )


def moe_geometry(spec: TargetSpec) -> MoeGeometry:
    """Return the mixture of the layers that route experts."""
    return MoeGeometry(
        hidden_size=spec.hidden_size,
        num_experts=spec.num_experts,
        topk_experts=spec.topk_experts,
        expert_intermediate_size=spec.expert_intermediate_size,
        shared_intermediate_size=spec.num_shared_experts * spec.shared_intermediate_size,
        routed_scaling_factor=spec.routed_scaling_factor,
        has_routing_bias=spec.has_routing_bias,
        swiglu_alpha=spec.swiglu_alpha,
        swiglu_limit=spec.swiglu_limit,
    )
