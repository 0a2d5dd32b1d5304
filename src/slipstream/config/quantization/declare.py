"""The declaration that belongs to a quantised checkpoint, in the field's spelling; the inverse of `read`.

Not here: which tensors are quantised, or how; see `weights.quantise`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.base.version import VERSION
from slipstream.config.quantization.read import FIELD, MIXED, PACKED_FORMAT
from slipstream.config.quantization.spec import MXFP8, MXFP8_BLOCK, NVFP4, NVFP4_GROUP, NVFP4_M31, WeightFormat


def declare(
    config: Mapping[str, Any], wanted: WeightFormat, layers: Mapping[str, WeightFormat], kept: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return config.json with its declaration, and hf_quant_config.json where the format has one.

    Args:
        config: config.json of the checkpoint in bfloat16.
        wanted: mxfp8, nvfp4 or nvfp4-m31.
        layers: format by name of module, of every quantised one.
        kept: names of modules that stay as they are.
    """
    if wanted == NVFP4:
        section = _mixed(layers, kept)
        file = {"producer": {"name": "slipstream", "version": VERSION}, "quantization": section}
        return {**config, FIELD: section}, file
    if wanted == NVFP4_M31 and MXFP8 not in layers.values():
        return {**config, FIELD: _packed(kept)}, None
    section = {
        "quant_method": "mxfp8",
        "activation_scheme": "dynamic",
        "weight_block_size": list(MXFP8_BLOCK),
        "ignored_layers": list(kept),
    }
    if wanted == NVFP4_M31:
        section |= {"moe_quant_algo": "NVFP4", "moe_quant_format": PACKED_FORMAT, "group_size": NVFP4_GROUP}
    return {**config, FIELD: section}, None


def _packed(kept: Sequence[str]) -> dict[str, Any]:
    weights = {
        "num_bits": 4,
        "type": "float",
        "strategy": "tensor_group",
        "group_size": NVFP4_GROUP,
        "symmetric": True,
        "dynamic": False,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": PACKED_FORMAT,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}},
        "ignore": list(kept),
    }


def _mixed(layers: Mapping[str, WeightFormat], kept: Sequence[str]) -> dict[str, Any]:
    entries = {MXFP8: {"quant_algo": "MXFP8"}, NVFP4: {"quant_algo": "NVFP4", "group_size": NVFP4_GROUP}}
    return {
        "quant_method": "modelopt",
        "quant_algo": MIXED,
        "kv_cache_quant_algo": None,
        "exclude_modules": list(kept),
        "quantized_layers": {module: dict(entries[form]) for module, form in layers.items()},
    }
