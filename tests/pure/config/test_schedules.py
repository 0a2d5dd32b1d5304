from typing import Any

import pytest

from slipstream.base.errors import CheckpointError
from slipstream.config.fields import Fields
from slipstream.config.schedules import read_moe_schedule, read_sparse
from support.tiny_checkpoints import tiny_config


def text_fields(changes: dict[str, Any] | None = None, nested: dict[str, Any] | None = None) -> Fields:
    text = tiny_config()["text_config"]
    text["sparse_attention_config"] |= nested or {}
    text |= changes or {}
    return Fields(text, "text_config")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"moe_layer_freq": [0, 1]}, "4 values, each 0 or 1"),
        ({"moe_layer_freq": [0, 1, 2, 1]}, "each 0 or 1"),
        ({"moe_layer_freq": 1}, "a list of whole numbers"),
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "wide"]}, "4 values of dense, sparse"),
        ({"mlp_layer_types": ["dense"] * 4}, "moe_layer_freq and mlp_layer_types disagree"),
    ],
)
def test_a_bad_moe_schedule_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read_moe_schedule(text_fields(changes), 4)


@pytest.mark.parametrize(
    ("nested", "words"),
    [
        ({"sparse_attention_freq": [1, 1, 1]}, "4 values"),
        ({"sparse_attention_freq": [0, 1, 1, 3]}, "each 0 or 1"),
        ({"sparse_disable_index_value": [0, 1, 1, 0]}, "index values are not supported"),
        ({"sparse_topk_blocks": None}, "sparse_topk_blocks is missing"),
        ({"sparse_local_block": None}, "sparse_local_block is missing"),
    ],
)
def test_a_bad_sparse_section_is_refused(nested: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read_sparse(text_fields(nested=nested), 4)


def test_layer_types_of_another_vocabulary_do_not_confuse_the_released_list() -> None:
    foreign = text_fields({"layer_types": ["attention"] * 4})
    schedule, spec = read_sparse(foreign, 4)
    assert schedule == (False, True, True, True)
    assert spec is not None
    assert "layer_types" not in foreign.unknown()


def test_layer_types_of_the_known_vocabulary_must_agree() -> None:
    with pytest.raises(CheckpointError, match="sparse_attention_freq and layer_types disagree"):
        read_sparse(text_fields({"layer_types": ["full_attention"] * 4}), 4)


def test_layer_types_alone_must_be_of_the_known_vocabulary() -> None:
    fields = text_fields({"layer_types": ["full_attention", "odd", "odd", "odd"]}, {"sparse_attention_freq": None})
    with pytest.raises(CheckpointError, match="minimax_m3_sparse"):
        read_sparse(fields, 4)


def test_a_model_without_sparse_layers_has_no_sparse_part() -> None:
    off = text_fields(nested={"use_sparse_attention": False})
    assert read_sparse(off, 4) == ((False,) * 4, None)
    assert not any(name.startswith("sparse_attention_config") for name in off.unknown())
    never = text_fields(nested={"sparse_attention_freq": [0] * 4})
    assert read_sparse(never, 4) == ((False,) * 4, None)


def test_without_any_schedule_the_field_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"sparse_attention_freq \(or layer_types\) is missing"):
        read_sparse(text_fields({"sparse_attention_config": None}), 4)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 1), (1, 2), (8, 2), (9, 3)])
def test_an_older_dialect_counts_forced_blocks_in_tokens(tokens: int, blocks: int) -> None:
    nested = {"sparse_local_block": None, "sparse_local_tokens": tokens, "sparse_init_block": None}
    _, spec = read_sparse(text_fields(nested=nested | {"sparse_init_tokens": tokens}), 4)
    assert spec is not None
    assert spec.num_local_blocks == blocks
    assert spec.num_init_blocks == blocks - 1


def test_the_two_ways_of_counting_must_agree() -> None:
    with pytest.raises(CheckpointError, match="sparse_local_block=1 and sparse_local_tokens=8 disagree"):
        read_sparse(text_fields(nested={"sparse_local_tokens": 8}), 4)
