import pytest

from slipstream.base.errors import CheckpointError
from slipstream.models.m3.names import IGNORED, Names, find_names


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (
            ["language_model.model.embed_tokens.weight", "language_model.model.layers.1.block_sparse_moe.gate.weight"],
            Names("language_model.model.", "language_model.lm_head.weight", False),
        ),
        (
            ["model.language_model.embed_tokens.weight", "model.language_model.layers.1.mlp.experts.gate_up_proj"],
            Names("model.language_model.", "lm_head.weight", True),
        ),
        (
            ["model.embed_tokens.weight", "model.layers.0.mlp.gate_up_proj.weight"],
            Names("model.", "lm_head.weight", True),
        ),
        (
            ["model.embed_tokens.weight", "model.layers.0.mlp.gate_proj.weight"],
            Names("model.", "lm_head.weight", False),
        ),
    ],
)
def test_the_layout_is_read_from_the_names(tensors: list[str], expected: Names) -> None:
    assert find_names(tensors, "folder") == expected


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(CheckpointError, match="folder: no token embedding; allowed names: language_model"):
        find_names(["transformer.wte.weight"], "folder")


@pytest.mark.parametrize(
    "name", ["model.layers.0.mlp.gate_proj.weight", "model.layers.0.self_attn.q_proj.weight", "lm_head.weight"]
)
def test_no_tensor_of_the_network_can_be_ignored(name: str) -> None:
    assert not any(rule.matches(name) or rule.matches(f"language_model.{name}") for rule in IGNORED)
