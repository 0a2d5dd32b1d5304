import json
import logging
from pathlib import Path
from typing import Any

import pytest

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.config.checkpoint import read_target
from slipstream.config.drafter import Eagle3Facts, read_eagle3
from slipstream.config.schema import TargetSpec
from support.tiny_checkpoints import tiny_eagle3_config, write_tiny_config

NUM_LAYERS = 10


@pytest.fixture
def target(tmp_path: Path) -> TargetSpec:
    return read_target(write_tiny_config(tmp_path / "target", num_layers=NUM_LAYERS))


def read_head(
    folder: Path, target: TargetSpec, changes: dict[str, Any], eagle: dict[str, Any] | None = None
) -> Eagle3Facts:
    config = tiny_eagle3_config(target)
    config["eagle_config"] |= eagle or {}
    config |= changes
    head = folder / "head"
    head.mkdir(exist_ok=True)
    (head / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "drop"}))
    return read_eagle3(head, target)


def test_a_plain_head_is_read_field_by_field(tmp_path: Path, target: TargetSpec) -> None:
    facts = read_head(tmp_path, target, {})
    spec = facts.spec
    assert (spec.hidden_size, spec.target_hidden_size, spec.num_heads, spec.num_kv_heads) == (64, 64, 4, 2)
    assert (spec.head_dim, spec.rotary_dim, spec.rope_theta, spec.rms_norm_eps) == (16, 16, 10_000.0, 1e-6)
    assert (spec.intermediate_size, spec.vocab_size, spec.draft_vocab_size) == (96, 160, 160)
    assert not any((spec.norm_before_fc, spec.fc_norm, spec.norm_output, spec.norm_before_residual))
    assert facts.unknown_fields == ()


@pytest.mark.parametrize("is_nested", [True, False])
def test_entered_layers_become_left_layers(tmp_path: Path, target: TargetSpec, is_nested: bool) -> None:
    ids = {"eagle_aux_hidden_state_layer_ids": [2, 5, 8]}
    none = {"eagle_aux_hidden_state_layer_ids": None}
    facts = read_head(tmp_path, target, {} if is_nested else ids, ids if is_nested else none)
    assert facts.spec.aux_layer_ids == (1, 4, 7)


def test_every_layer_can_be_named_in_both_ways(tmp_path: Path, target: TargetSpec) -> None:
    for layer in range(NUM_LAYERS):
        entered = {"eagle_aux_hidden_state_layer_ids": [layer + 1], "target_layer_ids": None}
        left = {"eagle_aux_hidden_state_layer_ids": None, "target_layer_ids": [layer]}
        one = {"num_aux_hidden_states": 1}
        assert read_head(tmp_path, target, one, entered).spec.aux_layer_ids == (layer,)
        assert read_head(tmp_path, target, one, left).spec.aux_layer_ids == (layer,)


def test_taps_are_ascending_whatever_the_order_in_the_file(tmp_path: Path, target: TargetSpec) -> None:
    facts = read_head(tmp_path, target, {}, {"eagle_aux_hidden_state_layer_ids": [8, 2, 5]})
    assert facts.spec.aux_layer_ids == (1, 4, 7)


def test_a_head_without_ids_gets_the_default_and_says_so(
    tmp_path: Path, target: TargetSpec, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        facts = read_head(tmp_path, target, {}, {"eagle_aux_hidden_state_layer_ids": None})
    assert facts.spec.aux_layer_ids == (1, 4, 6)
    assert "default for 10 layers" in facts.tap_origin
    assert any("[1, 4, 6]" in record.getMessage() for record in caplog.records)


def test_the_default_of_the_released_depth(tmp_path: Path) -> None:
    deep = read_target(write_tiny_config(tmp_path / "deep", num_layers=60))
    facts = read_head(tmp_path, deep, {}, {"eagle_aux_hidden_state_layer_ids": None})
    assert facts.spec.aux_layer_ids == (1, 29, 56)


@pytest.mark.parametrize("flag", ["norm_before_fc", "norm_before_residual"])
@pytest.mark.parametrize("is_nested", [True, False])
def test_nested_flags_are_found_in_both_places(tmp_path: Path, target: TargetSpec, flag: str, is_nested: bool) -> None:
    absent = {"norm_before_fc": None}
    if is_nested:
        spec = read_head(tmp_path, target, {flag: None}, absent | {flag: True}).spec
    else:
        spec = read_head(tmp_path, target, {flag: True}, absent).spec
    assert getattr(spec, flag)


def test_the_nested_flag_wins_over_the_top(tmp_path: Path, target: TargetSpec) -> None:
    assert not read_head(tmp_path, target, {"norm_before_fc": True}, {"norm_before_fc": False}).spec.norm_before_fc


@pytest.mark.parametrize("name", ["fc_norm", "use_aux_norm"])
def test_tap_norms_have_an_older_name(tmp_path: Path, target: TargetSpec, name: str) -> None:
    assert read_head(tmp_path, target, {"fc_norm": "drop", name: True}).spec.fc_norm


def test_norm_output_is_read_as_it_is_written(tmp_path: Path, target: TargetSpec) -> None:
    assert read_head(tmp_path, target, {"norm_output": True}).spec.norm_output


def test_a_reduced_vocabulary_and_its_defaults(tmp_path: Path, target: TargetSpec) -> None:
    assert read_head(tmp_path, target, {"draft_vocab_size": 32}).spec.draft_vocab_size == 32
    spec = read_head(
        tmp_path, target, {"draft_vocab_size": "drop", "num_key_value_heads": "drop", "head_dim": "drop"}
    ).spec
    assert (spec.draft_vocab_size, spec.num_kv_heads, spec.head_dim) == (160, 4, 16)


@pytest.mark.parametrize(
    ("changes", "eagle", "words"),
    [
        ({"vocab_size": 161}, {}, ("vocab_size=161", "vocab_size=160")),
        ({"target_hidden_size": 32}, {}, ("target_hidden_size=32", "hidden_size=64")),
        ({"draft_vocab_size": 161}, {}, ("draft_vocab_size=161", "vocab_size=160")),
        ({}, {"eagle_aux_hidden_state_layer_ids": [2, 5, 11]}, ("[1, 4, 10]", "layers 0 to 9")),
        ({}, {"eagle_aux_hidden_state_layer_ids": [0, 5, 9]}, ("[-1, 4, 8]", "layers 0 to 9")),
        ({}, {"eagle_aux_hidden_state_layer_ids": [2, 2, 5]}, ("[1, 1, 4]", "tapped once")),
        ({"num_aux_hidden_states": 2}, {}, ("num_aux_hidden_states=2", "3 tap layers")),
        ({"num_aux_hidden_states": 2}, {"eagle_aux_hidden_state_layer_ids": None}, ("does not give 2",)),
        ({}, {"target_layer_ids": [2, 5, 8]}, ("eagle_aux_hidden_state_layer_ids", "target_layer_ids=[2, 5, 8]")),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, {}, ("in eagle_config and [1, 2, 3] above",)),
        ({"fc_norm": True}, {"norm_before_fc": True}, ("norm_before_fc and fc_norm are both on",)),
        ({"num_attention_heads": 3}, {}, ("num_attention_heads=3", "num_key_value_heads=2")),
        ({"num_hidden_layers": 2}, {}, ("num_hidden_layers=2", "more than one layer")),
        ({"hidden_act": "gelu"}, {}, ("hidden_act='gelu'", "silu")),
        ({"attention_bias": True}, {}, ("attention_bias=True", "false")),
        ({"rope_scaling": {"rope_type": "yarn"}}, {}, ("rope_type='yarn'", "not supported yet")),
        ({"quantization_config": {"quant_method": "fp8"}}, {}, ("quantization_config", "not supported yet")),
        ({"architectures": ["LlamaForCausalLM"], "eagle_config": None}, {}, ("LlamaForCausalLM", "Eagle3")),
        ({"speculators_model_type": "eagle3"}, {}, ("speculators layout",)),
        ({"intermediate_size": "drop"}, {}, ("intermediate_size is missing",)),
        ({"rope_theta": "drop"}, {}, ("rope_theta is missing",)),
        ({"norm_output": 1}, {}, ("norm_output=1", "true or false")),
    ],
)
def test_what_does_not_fit_names_both_sides(
    tmp_path: Path, target: TargetSpec, changes: dict[str, Any], eagle: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_head(tmp_path, target, changes, eagle)
    assert str(tmp_path / "head" / "config.json") in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_shallow_target_has_no_default_taps(tmp_path: Path) -> None:
    shallow = read_target(write_tiny_config(tmp_path / "shallow", num_layers=3))
    with pytest.raises(CheckpointError, match="names no tap layers"):
        read_head(tmp_path, shallow, {}, {"eagle_aux_hidden_state_layer_ids": None})


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"architectures": ["Qwen3DSparkModel"], "dflash_config": {"projector_type": "dspark"}}, "dspark"),
        ({"architectures": ["DSparkMiniMaxDraftModel"], "dspark_block_size": 7}, "dspark"),
        ({"architectures": ["DFlashDraftModel"], "dflash_config": {"block_size": 16}}, "dflash"),
        ({"architectures": ["Other"], "markov_rank": 256}, "dspark"),
    ],
)
def test_block_drafters_are_recognised_and_refused(
    tmp_path: Path, target: TargetSpec, config: dict[str, Any], kind: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=f"a {kind} drafter, which is not supported yet"):
        read_eagle3(tmp_path, target)


def test_unknown_fields_and_a_short_head_are_told(
    tmp_path: Path, target: TargetSpec, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        facts = read_head(tmp_path, target, {"odd": 1, "max_position_embeddings": 64}, {"strange": 2})
    assert facts.unknown_fields == ("eagle_config.strange", "odd")
    assert any("eagle_config.strange, odd" in record.getMessage() for record in caplog.records)
    assert "64 positions" in facts.notes[0]


def test_a_missing_folder_is_named(tmp_path: Path, target: TargetSpec) -> None:
    with pytest.raises(CheckpointError, match="absent: no such folder"):
        read_eagle3(tmp_path / "absent", target)
