import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.base.errors import CheckpointError
from slipstream.config.checkpoint import read_checkpoint, read_target
from slipstream.config.schema import SparseAttentionSpec
from support.tiny_checkpoints import tiny_config, write_tiny_config

Edit = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], None]


def resaved_config(**geometry: Any) -> dict[str, Any]:
    """The tiny target as transformers 5 writes it when it saves again."""
    config = tiny_config(**geometry)
    text = config["text_config"]
    nested = text.pop("sparse_attention_config")
    text["layer_types"] = ["minimax_m3_sparse" if on else "full_attention" for on in nested["sparse_attention_freq"]]
    text["mlp_layer_types"] = ["sparse" if on else "dense" for on in text.pop("moe_layer_freq")]
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": text.pop("rope_theta"),
        "partial_rotary_factor": text.pop("partial_rotary_factor"),
    }
    text["hidden_act"] = "silu"
    text["model_type"] = "minimax_m3_vl_text"
    text |= {
        "index_n_heads": nested["sparse_num_index_heads"],
        "index_head_dim": nested["sparse_index_dim"],
        "index_block_size": nested["sparse_block_size"],
        "index_topk_blocks": nested["sparse_topk_blocks"],
        "index_local_blocks": nested["sparse_local_block"],
        "router_jitter_noise": 0.0,
        "dtype": config.pop("torch_dtype"),
    }
    return config


def read_edited(tmp_path: Path, edit: Edit, **geometry: Any) -> Any:
    config = tiny_config(**geometry)
    text = config["text_config"]
    edit(config, text, text["sparse_attention_config"])
    return read_checkpoint(write_tiny_config(tmp_path / "edited", config))


def test_the_released_dialect_is_read_field_by_field(tmp_path: Path) -> None:
    facts = read_checkpoint(write_tiny_config(tmp_path / "model"))
    spec = facts.target
    assert (facts.dialect, facts.stored_dtype, facts.unknown_fields) == ("released", "bfloat16", ())
    assert (spec.hidden_size, spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (64, 4, 8, 2, 16)
    assert (spec.rotary_dim, spec.rope_theta, spec.rms_norm_eps) == (8, 5_000_000.0, 1e-6)
    assert (spec.vocab_size, spec.max_position_embeddings) == (160, 512)
    sizes = (spec.dense_intermediate_size, spec.expert_intermediate_size, spec.shared_intermediate_size)
    assert sizes == (96, 48, 40)
    assert (spec.num_experts, spec.topk_experts, spec.routed_scaling_factor) == (8, 2, 2.0)
    assert (spec.swiglu_alpha, spec.swiglu_limit, spec.has_routing_bias) == (1.702, 7.0, True)
    assert spec.is_moe_layer == spec.is_sparse_layer == (False, True, True, True)
    assert spec.sparse == SparseAttentionSpec(
        num_index_heads=2, index_head_dim=16, index_block_size=8, topk_blocks=4, num_init_blocks=0, num_local_blocks=1
    )
    assert (spec.eos_token_ids, spec.tie_word_embeddings) == ((2,), False)


def test_every_dialect_gives_the_same_target(tmp_path: Path) -> None:
    released = read_target(write_tiny_config(tmp_path / "released"))
    config = tiny_config()
    flat = {key: value for key, value in config.items() if key not in ("text_config", "vision_config")}
    flat |= config["text_config"]
    as_flat = read_checkpoint(write_tiny_config(tmp_path / "flat", flat))
    as_resaved = read_checkpoint(write_tiny_config(tmp_path / "resaved", resaved_config()))
    assert (as_flat.target, as_flat.dialect, as_flat.unknown_fields) == (released, "flat", ())
    assert (as_resaved.target, as_resaved.dialect, as_resaved.unknown_fields) == (released, "resaved", ())


def test_the_two_published_schedules(tmp_path: Path) -> None:
    first = (0, 0, 0, 1, 1, 1)
    m3 = read_target(write_tiny_config(tmp_path / "m3", num_layers=6, moe=first, sparse=first))
    m31 = read_target(write_tiny_config(tmp_path / "m31", num_layers=6, moe=first, sparse=(1,) * 6))
    assert m3.is_sparse_layer == m3.is_moe_layer == (False,) * 3 + (True,) * 3
    assert m31.is_sparse_layer == (True,) * 6
    assert m31.is_moe_layer == m3.is_moe_layer


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda c, t, s: t.update(scoring_func="softmax"), ("scoring_func='softmax'", "sigmoid")),
        (lambda c, t, s: s.update(sparse_score_type="lse"), ("sparse_score_type='lse'", "max")),
        (lambda c, t, s: t.update(hidden_act="silu"), ("hidden_act='silu'", "swigluoai")),
        (lambda c, t, s: t.update(hidden_act="gelu"), ("hidden_act='gelu'", "swigluoai")),
        (lambda c, t, s: t.update(qk_norm_type="per_layer"), ("qk_norm_type='per_layer'", "per_head")),
        (lambda c, t, s: t.update(use_qk_norm=False), ("use_qk_norm=False", "true")),
        (lambda c, t, s: t.update(use_gemma_norm=False), ("use_gemma_norm=False", "true")),
        (lambda c, t, s: t.update(attention_output_gate=True), ("attention_output_gate=True", "false")),
        (lambda c, t, s: t.update(n_shared_experts=2), ("n_shared_experts=2", "allowed: 1")),
        (lambda c, t, s: t.update(attention_bias=True), ("attention_bias=True", "false")),
        (lambda c, t, s: t.update(sliding_window=4096), ("sliding_window=4096", "null")),
        (
            lambda c, t, s: t.update(rope_scaling={"type": "yarn", "factor": 4}),
            ("type='yarn'", "default", "not supported"),
        ),
        (lambda c, t, s: t.update(rope_parameters={"rope_type": "llama3"}), ("rope_type='llama3'", "default")),
        (lambda c, t, s: t.update(rope_parameters={"rope_theta": 1e4}), ("rope_theta is 5000000.0 and 10000.0",)),
        (lambda c, t, s: t.update(partial_rotary_factor=1.0), ("rotary_dim=8", "partial_rotary_factor=1.0", "16")),
        (lambda c, t, s: t.update(rotary_dim=7, partial_rotary_factor=None), ("rotary_dim=7", "even")),
        (lambda c, t, s: t.update(rotary_dim=18, partial_rotary_factor=None), ("rotary_dim=18", "head_dim=16")),
        (lambda c, t, s: c.update(torch_dtype="float8_e4m3fn"), ("torch_dtype='float8_e4m3fn'", "bfloat16")),
        (lambda c, t, s: t.update(dtype="float16"), ("disagree", "float16", "bfloat16")),
        (lambda c, t, s: t.update(num_attention_heads=7), ("num_attention_heads=7", "num_key_value_heads=2")),
        (lambda c, t, s: t.update(num_experts_per_tok=9), ("num_experts_per_tok=9", "num_local_experts=8")),
        (lambda c, t, s: s.update(sparse_num_index_heads=4), ("4 index heads", "num_key_value_heads=2")),
        (lambda c, t, s: s.update(sparse_index_dim=32), ("index head width 32", "head_dim=16")),
        (lambda c, t, s: s.update(sparse_local_block=5), ("5 local blocks", "at most 4")),
        (lambda c, t, s: s.update(sparse_block_size=0), ("sparse_block_size=0", "at least 1")),
        (lambda c, t, s: t.update(vocab_size="160"), ("vocab_size='160'", "a whole number")),
        (lambda c, t, s: t.update(hidden_size=64.0), ("hidden_size=64.0", "a whole number")),
        (lambda c, t, s: t.update(use_routing_bias=1), ("use_routing_bias=1", "true or false")),
        (lambda c, t, s: c.update(text_config=[1]), ("text_config=[1]", "an object")),
        (lambda c, t, s: c.update(model_type="llama", architectures=["Llama"]), ("model_type='llama'", "minimax_m3")),
    ],
)
def test_an_unknown_value_of_a_known_field_stops_the_load(tmp_path: Path, edit: Edit, words: tuple[str, ...]) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_edited(tmp_path, edit)
    for word in ("config.json", *words):
        assert word in str(caught.value)


REQUIRED = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "rope_theta",
    "rms_norm_eps", "vocab_size", "max_position_embeddings", "dense_intermediate_size", "intermediate_size",
    "shared_intermediate_size", "num_local_experts", "num_experts_per_tok", "routed_scaling_factor", "swiglu_alpha",
    "swiglu_limit", "hidden_act", "moe_layer_freq",
)  # fmt: skip


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_required_field_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=f"the field {name} .*is missing"):
        read_edited(tmp_path, lambda c, t, s: t.pop(name))


def test_the_rotary_share_may_come_from_either_field_but_not_from_none(tmp_path: Path) -> None:
    one = read_edited(tmp_path, lambda c, t, s: t.pop("rotary_dim")).target
    other = read_edited(tmp_path, lambda c, t, s: t.pop("partial_rotary_factor")).target
    assert one.rotary_dim == other.rotary_dim == 8
    with pytest.raises(CheckpointError, match="rotary_dim and partial_rotary_factor are both missing"):
        read_edited(tmp_path, lambda c, t, s: (t.pop("rotary_dim"), t.pop("partial_rotary_factor")))


@pytest.mark.parametrize("is_nested", [True, False])
def test_what_is_declared_about_quantised_weights_is_read(tmp_path: Path, is_nested: bool) -> None:
    value = {"quant_method": "mxfp8", "weight_block_size": [1, 32], "strange": 1}
    facts = read_edited(tmp_path, lambda c, t, s: (t if is_nested else c).update(quantization_config=value))
    assert facts.quantization.formats == ("mxfp8",)
    place = "text_config.quantization_config" if is_nested else "quantization_config"
    assert facts.unknown_fields == (f"{place}.strange",)


def test_other_quantised_weights_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"quantization_config.quant_method='awq' is not supported; allowed: "):
        read_edited(tmp_path, lambda c, t, s: c.update(quantization_config={"quant_method": "awq"}))


def test_unknown_fields_are_returned_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        facts = read_edited(tmp_path, lambda c, t, s: (c.update(a_new=1), t.update(b_new=2), s.update(c_new=3)))
    assert facts.unknown_fields == ("a_new", "text_config.b_new", "text_config.sparse_attention_config.c_new")
    lines = [record.getMessage() for record in caplog.records if "not read" in record.getMessage()]
    assert len(lines) == 1
    assert all(name in lines[0] for name in facts.unknown_fields)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [(7, 5, (7,)), ([7, 8, 7], None, (7, 8)), (None, 5, (5,)), ([], [4, 3], (4, 3))],
)
def test_end_tokens_come_from_the_generation_file_first(
    tmp_path: Path, generation: Any, config: Any, expected: tuple[int, ...]
) -> None:
    folder = write_tiny_config(tmp_path)
    values = tiny_config()
    values["text_config"]["eos_token_id"] = config
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    assert read_target(folder).eos_token_ids == expected


@pytest.mark.parametrize(
    ("value", "words"), [(160, "below vocab_size=160"), ("2", "whole number"), ([-1], "list of whole")]
)
def test_a_bad_end_token_names_the_file(tmp_path: Path, value: Any, words: str) -> None:
    folder = write_tiny_config(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(CheckpointError) as caught:
        read_target(folder)
    assert "generation_config.json" in str(caught.value)
    assert words in str(caught.value)


def test_without_an_end_token_the_load_stops(tmp_path: Path) -> None:
    config = tiny_config()
    del config["text_config"]["eos_token_id"]
    folder = write_tiny_config(tmp_path, config)
    (folder / "generation_config.json").unlink()
    with pytest.raises(CheckpointError, match="eos_token_id is missing"):
        read_target(folder)


def test_a_tied_head_may_be_declared_at_either_level(tmp_path: Path) -> None:
    assert read_edited(tmp_path, lambda c, t, s: c.update(tie_word_embeddings=True)).target.tie_word_embeddings
    assert read_edited(tmp_path, lambda c, t, s: t.update(tie_word_embeddings=True)).target.tie_word_embeddings


def test_a_missing_folder_and_a_missing_or_half_written_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no such folder.*are not downloaded"):
        read_target(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
        read_target(tmp_path)
    folder = write_tiny_config(tmp_path)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text[: len(text) // 2])
    with pytest.raises(CheckpointError, match="half-written"):
        read_target(folder)
