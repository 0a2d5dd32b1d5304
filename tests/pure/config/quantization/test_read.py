"""Declarations of quantised weights, in every spelling, and what each says about a tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipstream.base.errors import CheckpointError
from slipstream.config.quantization.read import read_quantization
from slipstream.config.quantization.spec import NOT_QUANTIZED, Quantization

BODY = "language_model.model.layers.3."
MXFP8 = {"quant_method": "mxfp8", "activation_scheme": "dynamic", "weight_block_size": [1, 32]}
M31 = MXFP8 | {"moe_quant_algo": "NVFP4", "moe_quant_format": "nvfp4-pack-quantized", "group_size": 16}
MIXED: dict[str, Any] = {
    "quant_method": "modelopt",
    "quant_algo": "MIXED_PRECISION",
    "kv_cache_quant_algo": None,
    "exclude_modules": ["lm_head", "model.embed_tokens", "vision_tower", f"{BODY}block_sparse_moe.gate"],
    "quantized_layers": {
        f"{BODY}block_sparse_moe.experts.0.w1": {"quant_algo": "NVFP4", "group_size": 16},
        f"{BODY}self_attn.q_proj": {"quant_algo": "MXFP8"},
        f"{BODY}mlp.gate_proj": {"quant_algo": "MXFP8"},
        f"{BODY}mlp.up_proj": {"quant_algo": "MXFP8"},
    },
}
PACKED: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"},
        }
    },
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*block_sparse_moe\\.gate$"],
    "kv_cache_scheme": None,
}


def write(folder: Path, value: Any, modelopt: Any = None, **top: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = top if value is None else {"quantization_config": value, **top}
    (folder / "config.json").write_text(json.dumps(config))
    if modelopt is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(modelopt))
    return folder


def read(tmp_path: Path, value: Any, modelopt: Any = None, **top: Any) -> Quantization:
    return read_quantization(write(tmp_path / "model", value, modelopt, **top))


def declared(found: Quantization, module: str) -> tuple[str, ...]:
    return found.declared(f"{module}.weight")


def test_without_a_declaration_everything_is_plain(tmp_path: Path) -> None:
    found = read(tmp_path, None)
    assert found == NOT_QUANTIZED
    assert found.formats == ()
    assert declared(found, f"{BODY}self_attn.q_proj") == declared(found, "lm_head") == ("plain",)


def test_mxfp8_means_all_projections_and_nothing_else(tmp_path: Path) -> None:
    found = read(tmp_path, MXFP8 | {"ignored_layers": ["lm_head", "gate", "vision_tower"]})
    assert found.formats == ("mxfp8",)
    for module in ("self_attn.q_proj", "self_attn.index_k_proj", "mlp.gate_proj", "mlp.gate_up_proj"):
        assert declared(found, f"{BODY}{module}") == ("mxfp8",), module
    for module in ("block_sparse_moe.experts.7.w2", "block_sparse_moe.shared_experts.down_proj"):
        assert declared(found, f"{BODY}{module}") == ("mxfp8",), module
    for module in ("block_sparse_moe.gate", "input_layernorm", "self_attn.q_norm"):
        assert declared(found, f"{BODY}{module}") == ("plain",), module
    assert declared(found, "language_model.lm_head") == ("plain",)
    assert declared(found, "vision_tower.layers.0.self_attn.q_proj") == ("plain",)
    # Not in the list: writers differ on whether tables count.
    assert declared(found, "language_model.model.embed_tokens") == ("plain", "mxfp8")
    assert found.declared(f"{BODY}self_attn.q_proj.bias") == ("plain",)
    assert found.declared(f"{BODY}mlp.experts.gate_up_proj") == ("mxfp8",)


def test_routed_experts_may_be_nvfp4_beside_mxfp8(tmp_path: Path) -> None:
    found = read(tmp_path, M31 | {"kv_cache_quant_algo": "FP8", "index_k_quant_type": "nvfp4"})
    assert found.formats == ("mxfp8", "nvfp4-m31")
    assert declared(found, f"{BODY}block_sparse_moe.experts.0.w1") == ("nvfp4-m31",)
    assert declared(found, f"{BODY}block_sparse_moe.shared_experts.gate_proj") == ("mxfp8",)
    assert [note.split()[0] for note in found.notes] == ["kv_cache_quant_algo", "index_k_quant_type"]


def test_a_map_says_exactly_what_is_quantised_by_names_of_parts(tmp_path: Path) -> None:
    found = read(tmp_path, MIXED)
    assert found.formats == ("mxfp8", "nvfp4")
    assert declared(found, f"{BODY}block_sparse_moe.experts.0.w1") == ("nvfp4",)
    assert declared(found, f"{BODY}block_sparse_moe.experts.0.w3") == ("plain",)
    assert declared(found, f"{BODY}self_attn.q_proj") == declared(found, f"{BODY}mlp.gate_up_proj") == ("mxfp8",)
    assert declared(found, f"{BODY}self_attn.k_proj") == declared(found, "language_model.lm_head") == ("plain",)


def test_parts_of_a_fused_module_must_agree(tmp_path: Path) -> None:
    layers = MIXED["quantized_layers"] | {f"{BODY}mlp.up_proj": {"quant_algo": "NVFP4"}}
    found = read(tmp_path, MIXED | {"quantized_layers": layers})
    with pytest.raises(CheckpointError, match=r"mlp.gate_up_proj is declared as mxfp8 and as nvfp4"):
        declared(found, f"{BODY}mlp.gate_up_proj")


def test_a_module_cannot_be_quantised_and_excluded(tmp_path: Path) -> None:
    found = read(tmp_path, MIXED | {"exclude_modules": ["self_attn"]})
    with pytest.raises(CheckpointError, match=r"self_attn.q_proj is declared as mxfp8 and as plain"):
        declared(found, f"{BODY}self_attn.q_proj")


@pytest.mark.parametrize(("algorithm", "form"), [("NVFP4", "nvfp4"), ("MXFP8", "mxfp8")])
def test_modelopt_with_one_algorithm(tmp_path: Path, algorithm: str, form: str) -> None:
    value = {"quant_method": "modelopt", "quant_algo": algorithm, "exclude_modules": ["model.layers.3.self_attn*"]}
    found = read(tmp_path, value)
    assert declared(found, f"{BODY}block_sparse_moe.experts.0.w1") == (form,)
    assert declared(found, f"{BODY}self_attn.q_proj") == ("plain",)
    assert declared(found, "language_model.model.layers.33.self_attn.q_proj") == (form,)


def test_compressed_tensors_with_regular_expressions(tmp_path: Path) -> None:
    found = read(tmp_path, PACKED)
    assert found.formats == ("nvfp4-m31",)
    assert declared(found, f"{BODY}block_sparse_moe.experts.0.w1") == ("nvfp4-m31",)
    assert declared(found, f"{BODY}block_sparse_moe.shared_experts.gate_proj") == ("nvfp4-m31",)
    assert declared(found, f"{BODY}self_attn.q_proj") == declared(found, f"{BODY}block_sparse_moe.gate") == ("plain",)


def test_an_entry_names_whole_modules_and_never_a_part_of_a_name(tmp_path: Path) -> None:
    found = read(tmp_path, MXFP8 | {"ignored_layers": ["gate", "q_pro", "layers.3.mlp", "index_*"]})
    assert declared(found, f"{BODY}mlp.gate_proj") == ("plain",)
    assert declared(found, "language_model.model.layers.4.mlp.gate_proj") == ("mxfp8",)
    assert declared(found, f"{BODY}self_attn.q_proj") == ("mxfp8",)
    assert declared(found, f"{BODY}self_attn.index_q_proj") == ("plain",)


def test_modelopts_own_file_counts_alone_and_must_agree(tmp_path: Path) -> None:
    inner = {name: value for name, value in MIXED.items() if name != "quant_method"}
    file = {"producer": {"name": "modelopt"}, "quantization": inner}
    assert read(tmp_path / "a", None, file).formats == ("mxfp8", "nvfp4")
    assert read(tmp_path / "b", MIXED, file).formats == ("mxfp8", "nvfp4")
    layers = MIXED["quantized_layers"] | {f"{BODY}self_attn.q_proj": {"quant_algo": "NVFP4"}}
    with pytest.raises(CheckpointError, match=r"disagree about layers: .*q_proj is nvfp4 and mxfp8"):
        read(tmp_path / "c", MIXED | {"quantized_layers": layers}, file)
    with pytest.raises(CheckpointError, match=r"disagree about excluded: odd is in one of them only"):
        read(tmp_path / "d", MIXED | {"exclude_modules": [*MIXED["exclude_modules"], "odd"]}, file)
    with pytest.raises(CheckpointError, match=r"disagree about default: mxfp8 and plain"):
        read(tmp_path / "e", MXFP8, file)
    with pytest.raises(CheckpointError, match="the field quantization is missing"):
        read(tmp_path / "f", MIXED, {"producer": {}})


def test_both_sections_of_a_config_must_agree(tmp_path: Path) -> None:
    assert read(tmp_path / "a", MXFP8, text_config={"quantization_config": MXFP8}).formats == ("mxfp8",)
    with pytest.raises(CheckpointError, match="disagree about experts: mxfp8 and nvfp4-m31"):
        read(tmp_path / "b", MXFP8, text_config={"quantization_config": M31})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"quant_method": "fp8"}, ("quant_method='fp8'", '"mxfp8", "modelopt", "compressed-tensors"')),
        ({}, ("quant_method is missing",)),
        ("mxfp8", ("quantization_config='mxfp8'", "an object")),
        (MXFP8 | {"weight_block_size": [128, 128]}, ("weight_block_size=[128, 128]", "[1, 32]")),
        (MXFP8 | {"activation_scheme": "static"}, ("activation_scheme='static'", '"dynamic"')),
        (MXFP8 | {"moe_quant_algo": "MXFP4"}, ("moe_quant_algo='MXFP4'", '"MXFP8", "NVFP4"')),
        (MXFP8 | {"kv_cache_quant_algo": "NVFP4"}, ("kv_cache_quant_algo='NVFP4'", '"FP8"')),
        (M31 | {"moe_quant_format": "other"}, ("moe_quant_format='other'", "nvfp4-pack-quantized")),
        (M31 | {"group_size": 32}, ("group_size=32", "16")),
        (MXFP8 | {"ignored_layers": ["*gate*"]}, ("ignored_layers='*gate*'", "names of modules", "* at its end")),
        (MXFP8 | {"ignored_layers": ["re:.*gate"]}, ("ignored_layers='re:.*gate'", "names of modules")),
        (MXFP8 | {"ignored_layers": "lm_head"}, ("ignored_layers='lm_head'", "a list of strings")),
        (MXFP8 | {"ignored_layers": ["a"], "modules_to_not_convert": ["b"]}, ("differ; give one",)),
        (MIXED | {"quant_algo": "FP8"}, ("quant_algo='FP8'", '"MXFP8", "NVFP4", "MIXED_PRECISION"')),
        (MIXED | {"quantized_layers": {}}, ("quantized_layers={}", "name of a module")),
        (MIXED | {"quantized_layers": {"a": "NVFP4"}}, ("quantized_layers['a']='NVFP4'", "an object")),
        (MIXED | {"quantized_layers": {"a": {"quant_algo": "FP8"}}}, ("['a'].quant_algo='FP8'", '"MXFP8", "NVFP4"')),
        (MIXED | {"quantized_layers": {"a": {"quant_algo": "NVFP4", "group_size": 32}}}, ("group_size=32", "16")),
        (MIXED | {"quant_algo": "NVFP4"}, ("quantized_layers", "only with quant_algo MIXED_PRECISION")),
        (MIXED | {"kv_cache_quant_algo": "INT8"}, ("kv_cache_quant_algo='INT8'", '"FP8"')),
        (PACKED | {"format": "pack-quantized"}, ("format='pack-quantized'", "nvfp4-pack-quantized")),
        (PACKED | {"kv_cache_scheme": {"num_bits": 8}}, ("kv_cache_scheme", "null")),
        (PACKED | {"sparsity_config": {"a": 1}}, ("sparsity_config", "an empty object or null")),
        (PACKED | {"config_groups": {}}, ("config_groups={}", "one group")),
        (PACKED | {"config_groups": {"g": {"targets": ["Linear"]}}}, ("config_groups.g", "weights is missing")),
        (PACKED | {"ignore": ["re:("]}, ("ignore='re:('", "a regular expression after re:")),
    ],
)
def test_what_is_not_certain_is_refused_with_what_is_allowed(
    tmp_path: Path, value: Any, words: tuple[str, ...]
) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, value)
    for word in (*words, "config.json"):
        assert word in str(caught.value)


def test_targets_other_than_all_linear_modules_are_refused(tmp_path: Path) -> None:
    group = PACKED["config_groups"]["group_0"]
    with pytest.raises(
        CheckpointError, match=r"group_0.targets=\['re:.\*w1'\] is not supported; allowed: \[\"Linear\"\]"
    ):
        read(tmp_path, PACKED | {"config_groups": {"group_0": group | {"targets": ["re:.*w1"]}}})


def test_the_fields_old_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="compression_config.*quantization_config"):
        read(tmp_path, None, compression_config={"format": "x"})
