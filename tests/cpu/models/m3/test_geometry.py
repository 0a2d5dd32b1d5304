from pathlib import Path

import msgspec
import pytest

from slipstream.base.errors import ConfigError
from slipstream.config.bytes import kv_heads_per_rank
from slipstream.config.checkpoint import read_target
from slipstream.config.schema import TargetSpec
from slipstream.models.m3.geometry import attention_geometry, index_geometry, moe_geometry, rank_sizes
from slipstream.parallel.mesh import Mesh
from support.tiny_checkpoints import write_tiny_config


@pytest.fixture
def spec(tmp_path: Path) -> TargetSpec:
    return read_target(write_tiny_config(tmp_path))


@pytest.mark.parametrize("tp_size", [1, 2, 4, 8])
def test_ranks_share_every_axis_and_replicate_kv_heads(spec: TargetSpec, tp_size: int) -> None:
    sizes = [rank_sizes(spec, Mesh(tp_size, rank)) for rank in range(tp_size)]
    assert len(set(sizes)) == 1
    own = sizes[0]
    assert own.num_heads * tp_size == spec.num_heads
    assert own.num_kv_heads == own.num_index_heads == max(1, spec.num_kv_heads // tp_size)
    assert own.num_kv_heads == kv_heads_per_rank(spec.num_kv_heads, tp_size)
    assert (own.dense_columns, own.expert_columns, own.shared_columns, own.vocab_rows) == tuple(
        size // tp_size for size in (96, 48, 40, 160)
    )


def test_an_axis_that_does_not_divide_is_named(spec: TargetSpec) -> None:
    with pytest.raises(ConfigError, match="vocab_size"):
        rank_sizes(msgspec.structs.replace(spec, vocab_size=161), Mesh(2, 0))


def test_layers_get_the_sizes_of_the_checkpoint(spec: TargetSpec) -> None:
    attention, moe, index = attention_geometry(spec), moe_geometry(spec), index_geometry(spec)
    assert (attention.input_size, attention.hidden_size, attention.rotary_dim) == (64, 64, 8)
    assert (moe.num_experts, moe.topk_experts, moe.shared_intermediate_size) == (8, 2, 40)
    assert (moe.routed_scaling_factor, moe.swiglu_alpha, moe.swiglu_limit) == (2.0, 1.702, 7.0)
    assert (index.topk, index.num_init_blocks, index.num_local_blocks) == (4, 0, 1)


def test_a_dense_network_has_no_index_branch(spec: TargetSpec) -> None:
    dense = msgspec.structs.replace(spec, sparse=None, is_sparse_layer=(False,) * 4)
    assert rank_sizes(dense, Mesh()).num_index_heads == 0
    with pytest.raises(ConfigError, match="no sparse layer"):
        index_geometry(dense)
