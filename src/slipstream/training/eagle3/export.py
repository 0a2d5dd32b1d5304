"""A head as the field's engines load it: config.json and model.safetensors, without the target's embedding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from slipstream.config.checkpoint import CONFIG_FILE
from slipstream.config.schema import Eagle3Spec
from slipstream.training.run_folder import write_text, write_whole
from slipstream.weights.reader import SINGLE_FILE


def head_config(spec: Eagle3Spec, eos_token_ids: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return config.json of a head. Layer ids there count the layer that a state enters: one more than the taps."""
    entered = [layer + 1 for layer in spec.aux_layer_ids]
    ends = {"eos_token_id": eos_token_ids[0] if len(eos_token_ids) == 1 else list(eos_token_ids)}
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": spec.hidden_size,
        "target_hidden_size": spec.target_hidden_size,
        "num_hidden_layers": 1,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate_size,
        "hidden_act": spec.hidden_act,
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": spec.rms_norm_eps,
        "rope_theta": spec.rope_theta,
        "partial_rotary_factor": spec.rotary_dim / spec.head_dim,
        "rope_scaling": None,
        "max_position_embeddings": spec.max_position_embeddings,
        "vocab_size": spec.vocab_size,
        "draft_vocab_size": spec.draft_vocab_size,
        "tie_word_embeddings": False,
        **(ends if eos_token_ids else {}),
        "num_aux_hidden_states": len(spec.aux_layer_ids),
        "eagle_aux_hidden_state_layer_ids": entered,
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": entered,
            "norm_before_fc": spec.norm_before_fc,
        },
        "fc_norm": spec.fc_norm,
        "norm_output": spec.norm_output,
        "norm_before_residual": spec.norm_before_residual,
    }


def head_tensors(spec: Eagle3Spec, network: nn.Module, kept_ids: Tensor) -> dict[str, Tensor]:
    """Return the tensors of a head: matrices and norms in bfloat16, and the maps of a reduced vocabulary.

    `d2t` holds offsets, target id less draft id; `t2d` marks the target ids that can be drafted.
    """
    tensors = {name: value.detach().to("cpu", torch.bfloat16) for name, value in network.state_dict().items()}
    if spec.draft_vocab_size != spec.vocab_size:
        kept = kept_ids.to("cpu")
        tensors["d2t"] = kept - torch.arange(len(kept))
        tensors["t2d"] = torch.zeros(spec.vocab_size, dtype=torch.bool)
        tensors["t2d"][kept] = True
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def export_head(
    folder: Path, spec: Eagle3Spec, network: nn.Module, kept_ids: Tensor, eos_token_ids: tuple[int, ...] = ()
) -> None:
    """Write a head.

    Args:
        folder: made if it is not there.
        spec: of the head.
        network: whose state dict has the field's names.
        kept_ids: [draft_vocab_size] int64, ascending.
        eos_token_ids: of the target.
    """
    tensors = head_tensors(spec, network, kept_ids)
    write_whole(folder / SINGLE_FILE, lambda partial: save_file(tensors, partial, metadata={"format": "pt"}))
    write_text(folder / CONFIG_FILE, json.dumps(head_config(spec, eos_token_ids), indent=2) + "\n")
