"""Write small random EAGLE-3 heads in the layout that the field publishes: for tests, benchmarks and recipes.

Not here: anything trained. The head fits a target of the sizes given; `make_checkpoint.py` writes one.

    python tools/make_eagle3.py TARGET/eagle3 --target TARGET
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from make_checkpoint import Draws, save_tensors, write_json

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eagle3Geometry:
    """Sizes and switches of an EAGLE-3 head; `aux_layer_ids` are post(x) ids and are stored as pre(x + 1)."""

    target_hidden_size: int
    vocab_size: int
    hidden_size: int
    aux_layer_ids: tuple[int, ...] | None
    num_taps: int = 3
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    intermediate_size: int = 96
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 512
    draft_vocab_size: int | None = None
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    norm_before_residual: bool = False
    embeddings: bool = True
    lm_head: bool = True


def eagle3_config(geometry: Eagle3Geometry) -> dict[str, Any]:
    """Return config.json of a head as the field publishes them."""
    g = geometry
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 1,
        "hidden_size": g.hidden_size,
        "target_hidden_size": g.target_hidden_size,
        "num_attention_heads": g.num_heads,
        "num_key_value_heads": g.num_kv_heads,
        "head_dim": g.head_dim,
        "intermediate_size": g.intermediate_size,
        "hidden_act": "silu",
        "rope_theta": g.rope_theta,
        "rms_norm_eps": g.rms_norm_eps,
        "max_position_embeddings": g.max_position_embeddings,
        "vocab_size": g.vocab_size,
        "draft_vocab_size": g.draft_vocab_size or g.vocab_size,
        "num_aux_hidden_states": g.num_taps,
        "tie_word_embeddings": False,
        "fc_norm": g.fc_norm,
        "norm_output": g.norm_output,
        "norm_before_residual": g.norm_before_residual,
        "eagle_config": {"use_aux_hidden_state": True, "norm_before_fc": g.norm_before_fc},
    }
    if g.aux_layer_ids is not None:
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [layer + 1 for layer in g.aux_layer_ids]
    return config


def eagle3_tensors(geometry: Eagle3Geometry, draw: Draws) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, tensor) of a head. Its norms store the gain itself, not an offset from 1."""
    import torch

    g = geometry
    width = g.num_taps * g.target_hidden_size
    draft_vocab = g.draft_vocab_size or g.vocab_size
    if g.embeddings:
        yield "embed_tokens.weight", draw.matrix(g.vocab_size, g.hidden_size, gain=g.hidden_size**0.5)
    if g.lm_head:
        yield "lm_head.weight", draw.matrix(draft_vocab, g.hidden_size, gain=3.5)
    yield "fc.weight", draw.matrix(g.hidden_size, width)
    if g.norm_before_fc:
        yield "input_norm.weight", draw.norm(width, centre=1.0)
    if g.fc_norm:
        for tap in range(g.num_taps):
            yield f"fc_norm.{tap}.weight", draw.norm(g.target_hidden_size, centre=1.0)
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        yield f"midlayer.{name}.weight", draw.norm(g.hidden_size, centre=1.0)
    heads = {"q_proj": g.num_heads, "k_proj": g.num_kv_heads, "v_proj": g.num_kv_heads}
    for name, num_heads in heads.items():
        yield f"midlayer.self_attn.{name}.weight", draw.matrix(num_heads * g.head_dim, 2 * g.hidden_size)
    yield "midlayer.self_attn.o_proj.weight", draw.matrix(g.hidden_size, g.num_heads * g.head_dim)
    yield "midlayer.mlp.gate_proj.weight", draw.matrix(g.intermediate_size, g.hidden_size)
    yield "midlayer.mlp.up_proj.weight", draw.matrix(g.intermediate_size, g.hidden_size)
    yield "midlayer.mlp.down_proj.weight", draw.matrix(g.hidden_size, g.intermediate_size)
    yield "norm.weight", draw.norm(g.hidden_size, centre=1.0)
    if g.draft_vocab_size is not None:
        chosen = torch.randperm(g.vocab_size, generator=torch.Generator().manual_seed(1))[:draft_vocab].sort().values
        yield "d2t", chosen - torch.arange(draft_vocab)
        yield "t2d", torch.zeros(g.vocab_size, dtype=torch.bool).index_fill_(0, chosen, True)


def write_eagle3(folder: Path, geometry: Eagle3Geometry, *, seed: int = 1, dtype: str = "bfloat16") -> Path:
    """Write config.json and random weights of a head into `folder`, and return it."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", eagle3_config(geometry))
    save_tensors(folder, dict(eagle3_tensors(geometry, Draws(seed, getattr(torch, dtype)))))
    return folder


def default_taps(num_layers: int) -> tuple[int, int, int]:
    """Return three post(x) taps that exist and differ at any depth of at least 3."""
    return (0, (num_layers - 1) // 2, num_layers - 1)


def main() -> None:
    """Write a head for a released-layout target from the command line."""
    parser = argparse.ArgumentParser(description="Write a small random EAGLE-3 head for a target.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", type=Path, required=True, help="folder of the target checkpoint")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    target = json.loads((arguments.target / "config.json").read_text(encoding="utf-8"))["text_config"]
    geometry = Eagle3Geometry(
        target_hidden_size=target["hidden_size"],
        vocab_size=target["vocab_size"],
        hidden_size=target["hidden_size"],
        max_position_embeddings=target["max_position_embeddings"],
        aux_layer_ids=default_taps(target["num_hidden_layers"]),
    )
    write_eagle3(arguments.folder, geometry, seed=arguments.seed)
    print(f"wrote {arguments.folder}")


if __name__ == "__main__":
    main()
