"""Shapes of the bundled model and the config file that describes them.

Not here: the network (network.py) or the tensors on disk (checkpoint.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Geometry:
    """Sizes of one target network; widths in elements, blocks in tokens."""

    vocab_size: int = 4096
    hidden_size: int = 256
    num_layers: int = 6
    num_dense_layers: int = 1
    num_heads: int = 8
    num_kv_heads: int = 2
    head_dim: int = 32
    rotary_dim: int = 16
    rope_theta: float = 100_000.0
    dense_intermediate_size: int = 512
    num_experts: int = 8
    topk_experts: int = 2
    expert_intermediate_size: int = 128
    routed_scale: float = 2.0
    swiglu_alpha: float = 1.702
    swiglu_limit: float = 7.0
    index_head_dim: int = 32
    index_block_size: int = 16
    topk_blocks: int = 8
    num_local_blocks: int = 1
    norm_eps: float = 1e-6
    max_positions: int = 2048

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head; there is one index head per KV head."""
        return self.num_heads // self.num_kv_heads

    def is_sparse(self, layer: int) -> bool:
        """Say whether a layer has routed experts and block selection."""
        return layer >= self.num_dense_layers


@dataclass(frozen=True)
class DraftGeometry:
    """Sizes of the EAGLE-3 head; taps name zero-based target layers whose output is read."""

    target: Geometry
    taps: tuple[int, ...] = (1, 3, 4)
    num_heads: int = 8
    num_kv_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 512
    draft_vocab_size: int = 2048
    rope_theta: float = 100_000.0
    norm_eps: float = 1e-6


FULL = Geometry()
TINY = replace(
    FULL,
    hidden_size=64,
    num_layers=3,
    num_heads=4,
    head_dim=16,
    rotary_dim=8,
    dense_intermediate_size=96,
    num_experts=4,
    expert_intermediate_size=32,
    index_head_dim=16,
    topk_blocks=4,
)


def draft_geometry(target: Geometry) -> DraftGeometry:
    """Return the head's sizes that go with a target: the full ones, or small ones for a trial run."""
    if target.num_layers >= FULL.num_layers:
        return DraftGeometry(target=target)
    return DraftGeometry(
        target=target,
        taps=(0, 1, 2)[: target.num_layers],
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        intermediate_size=96,
        draft_vocab_size=1024,
    )


def target_config(shape: Geometry, ids: dict[str, int]) -> dict[str, Any]:
    """Build config.json of the target in the layout of the family's released checkpoints.

    Args:
        shape: sizes.
        ids: token ids by name: `eos`, `bos`, `image`, `video`.
    """
    schedule = [int(shape.is_sparse(layer)) for layer in range(shape.num_layers)]
    text = {
        "architectures": ["MiniMaxM3SparseForCausalLM"],
        "model_type": "minimax_m3_vl_text",
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "rotary_dim": shape.rotary_dim,
        "partial_rotary_factor": shape.rotary_dim / shape.head_dim,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": shape.max_positions,
        "rms_norm_eps": shape.norm_eps,
        "use_gemma_norm": True,
        "attention_output_gate": False,
        "use_qk_norm": True,
        "qk_norm_type": "per_head",
        "tie_word_embeddings": False,
        "hidden_act": "swigluoai",
        "swiglu_alpha": shape.swiglu_alpha,
        "swiglu_limit": shape.swiglu_limit,
        "intermediate_size": shape.expert_intermediate_size,
        "shared_intermediate_size": shape.expert_intermediate_size,
        "dense_intermediate_size": shape.dense_intermediate_size,
        "n_shared_experts": 1,
        "num_local_experts": shape.num_experts,
        "num_experts_per_tok": shape.topk_experts,
        "scoring_func": "sigmoid",
        "use_routing_bias": True,
        "routed_scaling_factor": shape.routed_scale,
        "moe_layer_freq": schedule,
        "num_mtp_modules": 0,
        "num_nextn_predict_layers": 0,
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
        "torch_dtype": "bfloat16",
        "sparse_attention_config": {
            "use_sparse_attention": True,
            "sparse_index_dim": shape.index_head_dim,
            "sparse_num_index_heads": shape.num_kv_heads,
            "sparse_topk_blocks": shape.topk_blocks,
            "sparse_block_size": shape.index_block_size,
            "sparse_score_type": "max",
            "sparse_init_block": 0,
            "sparse_local_block": shape.num_local_blocks,
            "sparse_attention_freq": schedule,
            "sparse_disable_index_value": schedule,
        },
    }
    return {
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "model_type": "minimax_m3_vl",
        "torch_dtype": "bfloat16",
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
        "image_token_index": ids["image"],
        "video_token_index": ids["video"],
        "tie_word_embeddings": False,
        "text_config": text,
    }


def draft_config(shape: DraftGeometry, ids: dict[str, int]) -> dict[str, Any]:
    """Build config.json of the EAGLE-3 head; layer ids there count the layer that the state *enters*."""
    entering = [tap + 1 for tap in shape.taps]
    target = shape.target
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": target.hidden_size,
        "target_hidden_size": target.hidden_size,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate_size,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "partial_rotary_factor": 1.0,
        "rope_scaling": None,
        "max_position_embeddings": target.max_positions,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": shape.draft_vocab_size,
        "tie_word_embeddings": False,
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
        "num_aux_hidden_states": len(shape.taps),
        "eagle_aux_hidden_state_layer_ids": entering,
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": entering,
            "norm_before_fc": False,
        },
        "fc_norm": True,
        "norm_output": True,
        "norm_before_residual": False,
    }


def read_target_config(config: dict[str, Any]) -> Geometry:
    """Read the sizes back from a config.json written by `target_config`."""
    text = config["text_config"]
    sparse = text["sparse_attention_config"]
    return Geometry(
        vocab_size=text["vocab_size"],
        hidden_size=text["hidden_size"],
        num_layers=text["num_hidden_layers"],
        num_dense_layers=text["moe_layer_freq"].count(0),
        num_heads=text["num_attention_heads"],
        num_kv_heads=text["num_key_value_heads"],
        head_dim=text["head_dim"],
        rotary_dim=text["rotary_dim"],
        rope_theta=text["rope_theta"],
        dense_intermediate_size=text["dense_intermediate_size"],
        num_experts=text["num_local_experts"],
        topk_experts=text["num_experts_per_tok"],
        expert_intermediate_size=text["intermediate_size"],
        routed_scale=text["routed_scaling_factor"],
        swiglu_alpha=text["swiglu_alpha"],
        swiglu_limit=text["swiglu_limit"],
        index_head_dim=sparse["sparse_index_dim"],
        index_block_size=sparse["sparse_block_size"],
        topk_blocks=sparse["sparse_topk_blocks"],
        num_local_blocks=sparse["sparse_local_block"],
        norm_eps=text["rms_norm_eps"],
        max_positions=text["max_position_embeddings"],
    )


def read_draft_config(config: dict[str, Any], target: Geometry) -> DraftGeometry:
    """Read the head's sizes back from a config.json written by `draft_config`."""
    return DraftGeometry(
        target=target,
        taps=tuple(layer - 1 for layer in config["eagle_aux_hidden_state_layer_ids"]),
        num_heads=config["num_attention_heads"],
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        intermediate_size=config["intermediate_size"],
        draft_vocab_size=config["draft_vocab_size"],
        rope_theta=config["rope_theta"],
        norm_eps=config["rms_norm_eps"],
    )
