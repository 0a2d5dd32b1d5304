"""Write small random targets in the layout that the family is released in: for tests, benchmarks and recipes.

The names and shapes are spelled out here and not taken from the weight rules of the package on purpose: a
loader that is checked against its own table proves nothing. Not here: anything trained, tokenizers, drafters.

    python tools/make_checkpoint.py OUT --set num_layers=6 --set vocab_size=512
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

EOS_TOKEN_ID = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Geometry:
    """Sizes of a target. `moe` and `sparse` are per-layer schedules; None means "all but the first layer"."""

    num_layers: int = 4
    hidden_size: int = 64
    num_heads: int = 8
    num_kv_heads: int = 2
    head_dim: int = 16
    rotary_dim: int = 8
    rope_theta: float = 5_000_000.0
    vocab_size: int = 160
    max_position_embeddings: int = 512
    dense_intermediate_size: int = 96
    expert_intermediate_size: int = 48
    shared_intermediate_size: int = 40
    num_experts: int = 8
    topk_experts: int = 2
    routed_scaling_factor: float = 2.0
    swiglu_alpha: float = 1.702
    swiglu_limit: float = 7.0
    rms_norm_eps: float = 1e-6
    index_head_dim: int = 16
    index_block_size: int = 8
    topk_blocks: int = 4
    num_init_blocks: int = 0
    num_local_blocks: int = 1
    tie_word_embeddings: bool = False
    eos_token_id: int = EOS_TOKEN_ID
    moe: tuple[int, ...] | None = None
    sparse: tuple[int, ...] | None = None
    vision_hidden_size: int = 16
    vision_layers: int = 1
    vision_patch_size: int = 4

    @property
    def moe_layer_freq(self) -> list[int]:
        """Return 0 or 1 per layer: routed experts or the dense MLP."""
        return list(self.moe) if self.moe is not None else [0] + [1] * (self.num_layers - 1)

    @property
    def sparse_attention_freq(self) -> list[int]:
        """Return 0 or 1 per layer: block-sparse or full attention."""
        return list(self.sparse) if self.sparse is not None else [0] + [1] * (self.num_layers - 1)


def released_config(geometry: Geometry) -> dict[str, Any]:
    """Return config.json as the family publishes it: a text_config with a nested sparse_attention_config."""
    g = geometry
    return {
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "model_type": "minimax_m3_vl",
        "torch_dtype": "bfloat16",
        "transformers_version": "4.52.4",
        "image_token_index": g.vocab_size - 2,
        "video_token_index": g.vocab_size - 1,
        "projector_hidden_size": g.hidden_size,
        "projector_hidden_act": "gelu",
        "multimodal_projector_bias": True,
        "text_config": {
            "architectures": ["MiniMaxM3SparseForCausalLM"],
            "model_type": "minimax_m3",
            "hidden_size": g.hidden_size,
            "num_hidden_layers": g.num_layers,
            "num_attention_heads": g.num_heads,
            "num_key_value_heads": g.num_kv_heads,
            "head_dim": g.head_dim,
            "rotary_dim": g.rotary_dim,
            "partial_rotary_factor": g.rotary_dim / g.head_dim,
            "rope_theta": g.rope_theta,
            "vocab_size": g.vocab_size,
            "max_position_embeddings": g.max_position_embeddings,
            "rms_norm_eps": g.rms_norm_eps,
            "use_gemma_norm": True,
            "attention_output_gate": False,
            "use_qk_norm": True,
            "qk_norm_type": "per_head",
            "tie_word_embeddings": g.tie_word_embeddings,
            "hidden_act": "swigluoai",
            "swiglu_alpha": g.swiglu_alpha,
            "swiglu_limit": g.swiglu_limit,
            "intermediate_size": g.expert_intermediate_size,
            "shared_intermediate_size": g.shared_intermediate_size,
            "dense_intermediate_size": g.dense_intermediate_size,
            "n_shared_experts": 1,
            "num_local_experts": g.num_experts,
            "num_experts_per_tok": g.topk_experts,
            "scoring_func": "sigmoid",
            "use_routing_bias": True,
            "routed_scaling_factor": g.routed_scaling_factor,
            "moe_layer_freq": g.moe_layer_freq,
            "num_mtp_modules": 0,
            "eos_token_id": g.eos_token_id,
            "sparse_attention_config": {
                "use_sparse_attention": any(g.sparse_attention_freq),
                "sparse_index_dim": g.index_head_dim,
                "sparse_num_index_heads": g.num_kv_heads,
                "sparse_topk_blocks": g.topk_blocks,
                "sparse_block_size": g.index_block_size,
                "sparse_score_type": "max",
                "sparse_init_block": g.num_init_blocks,
                "sparse_local_block": g.num_local_blocks,
                "sparse_attention_freq": g.sparse_attention_freq,
                "sparse_disable_index_value": g.sparse_attention_freq,
            },
        },
        "vision_config": {
            "hidden_size": g.vision_hidden_size,
            "num_attention_heads": 2,
            "num_hidden_layers": g.vision_layers,
            "intermediate_size": 2 * g.vision_hidden_size,
            "patch_size": g.vision_patch_size,
            "image_size": 8 * g.vision_patch_size,
            "hidden_act": "gelu",
            "model_type": "clip_vision_model",
        },
    }


class Draws:
    """Random tensors of a fixed seed, in the stored dtypes."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        import torch  # here, so that the configurations stay importable without it

        self._torch = torch
        self._generator = torch.Generator().manual_seed(seed)
        self._dtype = dtype

    def matrix(self, rows: int, columns: int, *, gain: float = 1.0) -> torch.Tensor:
        """Return [rows, columns] that maps unit-RMS inputs to outputs of RMS `gain`."""
        values = self._torch.randn(rows, columns, generator=self._generator)
        return (values * gain / columns**0.5).to(self._dtype)

    def norm(self, width: int, *, centre: float = 0.0) -> torch.Tensor:
        """Return [width] gains spread around `centre`; the target stores offsets from 1."""
        values = self._torch.rand(width, generator=self._generator) - 0.5
        return (values * 1.2 + centre).to(self._dtype)

    def uniform(self, *shape: int, spread: float) -> torch.Tensor:
        """Return float32 values in [-spread, spread]."""
        return (self._torch.rand(*shape, generator=self._generator) * 2 - 1) * spread


def _attention(g: Geometry, draw: Draws, is_sparse: bool) -> Iterator[tuple[str, torch.Tensor]]:
    yield "q_proj.weight", draw.matrix(g.num_heads * g.head_dim, g.hidden_size)
    yield "k_proj.weight", draw.matrix(g.num_kv_heads * g.head_dim, g.hidden_size)
    yield "v_proj.weight", draw.matrix(g.num_kv_heads * g.head_dim, g.hidden_size)
    yield "o_proj.weight", draw.matrix(g.hidden_size, g.num_heads * g.head_dim)
    yield "q_norm.weight", draw.norm(g.head_dim, centre=0.3)
    yield "k_norm.weight", draw.norm(g.head_dim, centre=0.3)
    if is_sparse:
        yield "index_q_proj.weight", draw.matrix(g.num_kv_heads * g.index_head_dim, g.hidden_size)
        yield "index_k_proj.weight", draw.matrix(g.index_head_dim, g.hidden_size)
        yield "index_q_norm.weight", draw.norm(g.index_head_dim)
        yield "index_k_norm.weight", draw.norm(g.index_head_dim)


def _gated(prefix: str, hidden: int, width: int, draw: Draws) -> Iterator[tuple[str, torch.Tensor]]:
    # A gain of 3 puts a few percent of the branches beyond the clamp at 7, so that it takes part.
    yield f"{prefix}gate_proj.weight", draw.matrix(width, hidden, gain=3.0)
    yield f"{prefix}up_proj.weight", draw.matrix(width, hidden, gain=3.0)
    yield f"{prefix}down_proj.weight", draw.matrix(hidden, width, gain=0.15)


def _experts(g: Geometry, draw: Draws) -> Iterator[tuple[str, torch.Tensor]]:
    yield "gate.weight", draw.matrix(g.num_experts, g.hidden_size).float() + 0.001
    yield "e_score_correction_bias", draw.uniform(g.num_experts, spread=0.3)
    for expert in range(g.num_experts):
        yield f"experts.{expert}.w1.weight", draw.matrix(g.expert_intermediate_size, g.hidden_size, gain=3.0)
        yield f"experts.{expert}.w3.weight", draw.matrix(g.expert_intermediate_size, g.hidden_size, gain=3.0)
        yield f"experts.{expert}.w2.weight", draw.matrix(g.hidden_size, g.expert_intermediate_size, gain=0.15)
    yield from _gated("shared_experts.", g.hidden_size, g.shared_intermediate_size, draw)


def _vision(g: Geometry, draw: Draws) -> Iterator[tuple[str, torch.Tensor]]:
    width, inner = g.vision_hidden_size, 2 * g.vision_hidden_size
    tower = "vision_tower.vision_model."
    patch = draw.uniform(width, 3, 2, g.vision_patch_size, g.vision_patch_size, spread=0.1)
    yield f"{tower}embeddings.patch_embedding.weight", patch
    for part in ("weight", "bias"):
        yield f"{tower}pre_layrnorm.{part}", draw.norm(width)
    linears = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (width, width)}
    linears |= {"self_attn.v_proj": (width, width), "self_attn.out_proj": (width, width)}
    linears |= {"mlp.fc1": (inner, width), "mlp.fc2": (width, inner)}
    for layer in range(g.vision_layers):
        for name in ("layer_norm1", "layer_norm2"):
            for part in ("weight", "bias"):
                yield f"{tower}encoder.layers.{layer}.{name}.{part}", draw.norm(width)
        for name, (rows, columns) in linears.items():
            yield f"{tower}encoder.layers.{layer}.{name}.weight", draw.matrix(rows, columns)
            yield f"{tower}encoder.layers.{layer}.{name}.bias", draw.norm(rows)
    hidden = g.hidden_size
    sides = {"multi_modal_projector.linear_1": width, "multi_modal_projector.linear_2": hidden}
    sides |= {"patch_merge_mlp.linear_1": 4 * hidden, "patch_merge_mlp.linear_2": hidden}
    for name, columns in sides.items():
        yield f"{name}.weight", draw.matrix(hidden, columns)
        yield f"{name}.bias", draw.norm(hidden)


def released_tensors(geometry: Geometry, draw: Draws, *, vision: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, tensor) of a whole checkpoint under the released names."""
    g = geometry
    embedding_gain = g.hidden_size**0.5
    embedding = draw.matrix(g.vocab_size, g.hidden_size, gain=embedding_gain)
    yield "language_model.model.embed_tokens.weight", embedding
    for layer in range(g.num_layers):
        prefix = f"language_model.model.layers.{layer}."
        yield f"{prefix}input_layernorm.weight", draw.norm(g.hidden_size)
        yield f"{prefix}post_attention_layernorm.weight", draw.norm(g.hidden_size)
        for name, tensor in _attention(g, draw, bool(g.sparse_attention_freq[layer])):
            yield f"{prefix}self_attn.{name}", tensor
        if g.moe_layer_freq[layer]:
            for name, tensor in _experts(g, draw):
                yield f"{prefix}block_sparse_moe.{name}", tensor
        else:
            yield from _gated(f"{prefix}mlp.", g.hidden_size, g.dense_intermediate_size, draw)
    yield "language_model.model.norm.weight", draw.norm(g.hidden_size)
    if not g.tie_word_embeddings:
        yield "language_model.lm_head.weight", draw.matrix(g.vocab_size, g.hidden_size, gain=3.5)
    if vision:
        yield from _vision(g, draw)


def write_checkpoint(
    folder: Path,
    geometry: Geometry,
    *,
    seed: int = 0,
    dtype: str = "bfloat16",
    num_shards: int = 1,
    vision: bool = True,
) -> Path:
    """Write config.json, generation_config.json and random weights into `folder`, and return it.

    Args:
        folder: created if it is missing.
        geometry: sizes.
        seed: of the weights.
        dtype: stored dtype of everything but the router and the patch embedding, which are float32.
        num_shards: 1 writes model.safetensors; more write numbered shards and an index.
        vision: include the (ignored) vision tensors.
    """
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", released_config(geometry))
    generation = {"eos_token_id": geometry.eos_token_id, "do_sample": True, "temperature": 1.0, "top_p": 0.95}
    write_json(folder / "generation_config.json", generation)
    draw = Draws(seed, getattr(torch, dtype))
    save_tensors(folder, dict(released_tensors(geometry, draw, vision=vision)), num_shards)
    return folder


def write_json(path: Path, value: object) -> None:
    """Write `value` as indented JSON."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def save_tensors(folder: Path, tensors: dict[str, torch.Tensor], num_shards: int = 1) -> None:
    """Write one safetensors file, or `num_shards` files of interleaved tensors with an index."""
    from safetensors.torch import save_file

    if num_shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(num_shards):
        file = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::num_shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    write_json(folder / "model.safetensors.index.json", index)


def _override(geometry: Geometry, pairs: list[str]) -> Geometry:
    """Apply NAME=VALUE pairs; values are JSON (numbers, true/false, lists for schedules)."""
    names = {field.name for field in dataclasses.fields(Geometry)}
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name not in names or not text:
            raise SystemExit(f"--set {pair}: give NAME=VALUE, NAME one of {', '.join(sorted(names))}")
        value = json.loads(text)
        changes[name] = tuple(value) if isinstance(value, list) else value
    return dataclasses.replace(geometry, **changes)


def main() -> None:
    """Write a checkpoint from the command line."""
    parser = argparse.ArgumentParser(description="Write a small random checkpoint in the released layout.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a field of Geometry")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    arguments = parser.parse_args()
    geometry = _override(Geometry(), arguments.set)
    write_checkpoint(arguments.folder, geometry, seed=arguments.seed, num_shards=arguments.shards)
    print(f"wrote {arguments.folder}")


if __name__ == "__main__":
    main()
