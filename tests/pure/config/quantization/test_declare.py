"""What is written about a quantised checkpoint is read back as it was meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipstream.config.quantization.declare import declare
from slipstream.config.quantization.read import read_quantization
from slipstream.config.quantization.spec import Quantization

LAYER = "language_model.model.layers.1."
KEPT = ["language_model.lm_head", f"{LAYER}block_sparse_moe.gate", "vision_tower"]


def read_back(folder: Path, wanted: Any, layers: dict[str, Any], kept: list[str]) -> Quantization:
    config, modelopt = declare({"model_type": "m", "text_config": {}}, wanted, layers, kept)
    assert config["model_type"] == "m"
    assert (modelopt is not None) == (wanted == "nvfp4")
    (folder / "config.json").write_text(json.dumps(config))
    if modelopt is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(modelopt))
    return read_quantization(folder)


@pytest.mark.parametrize("wanted", ["mxfp8", "nvfp4", "nvfp4-m31"])
@pytest.mark.parametrize("with_attention", [True, False])
def test_a_declaration_says_of_every_module_what_it_is(tmp_path: Path, wanted: Any, with_attention: bool) -> None:
    layers = {f"{LAYER}block_sparse_moe.experts.{expert}.{part}": wanted for expert in (0, 1) for part in ("w1", "w2")}
    attention = f"{LAYER}self_attn.q_proj"
    kept = KEPT if with_attention else [*KEPT, attention]
    if with_attention:
        layers[attention] = "mxfp8"
    found = read_back(tmp_path, wanted, layers, kept)
    for module, form in layers.items():
        assert found.declared(f"{module}.weight") == (form,)
    for module in (*kept, f"{LAYER}input_layernorm", "vision_tower.layers.0.mlp.fc1"):
        assert found.declared(f"{module}.weight") == ("plain",)


def test_a_map_of_modules_has_the_fields_own_words() -> None:
    config, file = declare({}, "nvfp4", {"a.w1": "nvfp4", "a.q_proj": "mxfp8"}, ["lm_head"])
    section = config["quantization_config"]
    assert section["quant_algo"] == "MIXED_PRECISION"
    assert section["quantized_layers"] == {
        "a.w1": {"quant_algo": "NVFP4", "group_size": 16},
        "a.q_proj": {"quant_algo": "MXFP8"},
    }
    assert file is not None
    assert file["quantization"] == section
    assert file["producer"]["name"] == "slipstream"
