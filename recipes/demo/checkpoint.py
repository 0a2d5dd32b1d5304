"""Write and read model folders with the tensor names of the family's released checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from draft_network import DraftNetwork
from geometry import draft_config, read_draft_config, read_target_config, target_config
from network import Network
from rounding import dequantise, quantise
from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS_FILE = "model.safetensors"
SCALE_SUFFIX = "_scale_inv"
PREFIX = "language_model.model."
ATTENTION_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "index_q_proj", "index_k_proj")
ATTENTION_NORMS = ("q_norm", "k_norm", "index_q_norm", "index_k_norm")
# Kept in float32 on disk, as released.
WIDE = ("gate.weight", "e_score_correction_bias")


def expert_names(layer: int, expert: int | None) -> dict[str, str]:
    """Return the disk names of the three matrices of an expert; None is the shared one."""
    moe = f"{PREFIX}layers.{layer}.block_sparse_moe."
    if expert is None:
        return {part: f"{moe}shared_experts.{part}_proj.weight" for part in ("gate", "up", "down")}
    released = {"gate": "w1", "up": "w3", "down": "w2"}
    return {part: f"{moe}experts.{expert}.{name}.weight" for part, name in released.items()}


def target_views(network: Network) -> dict[str, Tensor]:
    """Return every tensor of the network under its disk name, in disk orientation, as views."""
    views = {
        f"{PREFIX}embed_tokens.weight": network.embed.data,
        f"{PREFIX}norm.weight": network.final_norm.data,
        "language_model.lm_head.weight": network.head.data,
    }
    for layer, block in enumerate(network.blocks):
        base = f"{PREFIX}layers.{layer}."
        views[f"{base}input_layernorm.weight"] = block.input_norm.data
        views[f"{base}post_attention_layernorm.weight"] = block.post_norm.data
        for name in ATTENTION_PROJECTIONS + ATTENTION_NORMS:
            if hasattr(block.attention, name):
                views[f"{base}self_attn.{name}.weight"] = getattr(block.attention, name).data
        mlp = block.mlp
        if not mlp.sparse:
            names = [{part: f"{base}mlp.{part}_proj.weight" for part in ("gate", "up", "down")}]
        else:
            views[f"{base}block_sparse_moe.gate.weight"] = mlp.router.data
            views[f"{base}block_sparse_moe.e_score_correction_bias"] = mlp.bias
            names = [expert_names(layer, expert) for expert in [*range(network.shape.num_experts), None]]
        for expert, parts in enumerate(names):
            views[parts["gate"]] = mlp.gate.data[expert]
            views[parts["up"]] = mlp.up.data[expert]
            views[parts["down"]] = mlp.down.data[expert].T
    return views


def is_quantised(name: str) -> bool:
    """Say whether a tensor of the target ships in MXFP8: every matrix of a layer but the router's."""
    return name.endswith("_proj.weight") or ".experts." in name


def quantization_config(names: list[str]) -> dict[str, Any]:
    """Describe the format in config.json; modules with a matrix that stays as it is are listed."""
    ignored = sorted(
        name.removesuffix(".weight")
        for name in names
        if name.endswith((".weight",)) and "norm" not in name and not is_quantised(name)
    )
    return {
        "quant_method": "mxfp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [1, 32],
        "ignored_layers": ignored,
    }


def on_disk(name: str, tensor: Tensor) -> Tensor:
    """Return a tensor as it is stored."""
    dtype = torch.float32 if name.endswith(WIDE) else torch.bfloat16
    return tensor.detach().to("cpu", dtype).contiguous()


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def save_target(network: Network, folder: Path, ids: dict[str, int], is_mxfp8: bool = False) -> None:
    """Write the weights and config.json of a target, in bfloat16 or with its matrices in MXFP8."""
    folder.mkdir(parents=True, exist_ok=True)
    config = target_config(network.shape, ids)
    tensors: dict[str, Tensor] = {}
    for name, view in target_views(network).items():
        if is_mxfp8 and is_quantised(name):
            values, codes = quantise(view.detach())
            tensors[name] = values.cpu().contiguous()
            tensors[name + SCALE_SUFFIX] = codes.cpu().contiguous()
        else:
            tensors[name] = on_disk(name, view)
    if is_mxfp8:
        config["quantization_config"] = quantization_config(list(target_views(network)))
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    write_json(folder / "config.json", config)


def load_target(folder: Path) -> Network:
    """Read a target in either format; weights are widened to float32."""
    network = Network(read_target_config(json.loads((folder / "config.json").read_text())))
    stored = load_file(folder / WEIGHTS_FILE)
    views = target_views(network)
    for name in [name for name in stored if name.endswith(SCALE_SUFFIX)]:
        weight = name.removesuffix(SCALE_SUFFIX)
        stored[weight] = dequantise(stored[weight], stored.pop(name))
    if stored.keys() != views.keys():
        raise ValueError(f"{folder}: tensors differ from the config: {sorted(stored.keys() ^ views.keys())[:5]}")
    for name, view in views.items():
        view.copy_(stored[name])
    return network.eval().requires_grad_(False)


def save_draft(draft: DraftNetwork, folder: Path, ids: dict[str, int]) -> None:
    """Write the weights and config.json of an EAGLE-3 head; the embedding is the target's and is not stored."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: (tensor.cpu() if not tensor.is_floating_point() else tensor.detach().to("cpu", torch.bfloat16))
        for name, tensor in draft.state_dict().items()
    }
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS_FILE)
    write_json(folder / "config.json", draft_config(draft.shape, ids))


def load_draft(folder: Path, target: Network) -> DraftNetwork:
    """Read an EAGLE-3 head; weights are widened to float32."""
    shape = read_draft_config(json.loads((folder / "config.json").read_text()), target.shape)
    draft = DraftNetwork(shape)
    stored = load_file(folder / WEIGHTS_FILE)
    draft.load_state_dict(
        {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in stored.items()}
    )
    return draft.eval().requires_grad_(False)
