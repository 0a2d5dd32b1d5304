"""What a declaration says about one tensor, built by hand."""

from __future__ import annotations

import pytest

from slipstream.base.errors import CheckpointError
from slipstream.config.quantization.spec import NOT_QUANTIZED, PROJECTIONS, QUANTISED, Quantization


def test_the_default_holds_for_projections_alone() -> None:
    found = Quantization(default="mxfp8", experts="nvfp4")
    for name in PROJECTIONS:
        assert found.declared(f"layers.0.mlp.{name}.weight") == ("mxfp8",)
        assert found.declared(f"layers.0.mlp.experts.1.{name}.weight") == ("nvfp4",)
        assert found.declared(f"layers.0.mlp.shared_experts.{name}.weight") == ("mxfp8",)
        assert found.declared(f"layers.0.mlp.{name}.bias") == ("plain",)
        assert NOT_QUANTIZED.declared(f"layers.0.mlp.{name}.weight") == ("plain",)
    for name in ("gate", "norm", "q_norm", "router", "my_q_proj"):
        assert found.declared(f"layers.0.mlp.{name}.weight") == ("plain",)


def test_formats_are_those_in_use_without_plain() -> None:
    assert NOT_QUANTIZED.formats == ()
    assert Quantization(default="mxfp8", experts="nvfp4", layers={"a": "plain"}).formats == ("mxfp8", "nvfp4")
    assert set(QUANTISED) == {"mxfp8", "nvfp4", "nvfp4-m31"}


@pytest.mark.parametrize(
    ("entry", "module", "is_plain"),
    [
        ("self_attn", "layers.3.self_attn.q_proj", True),
        ("self_attn.q_proj", "layers.3.self_attn.q_proj", True),
        ("layers.3", "layers.3.self_attn.q_proj", True),
        ("layers.3", "layers.33.self_attn.q_proj", False),
        ("attn", "layers.3.self_attn.q_proj", False),
        ("q", "layers.3.self_attn.q_proj", False),
        ("q*", "layers.3.self_attn.q_proj", True),
        ("elf_attn*", "layers.3.self_attn.q_proj", False),
        ("layers.3*", "layers.33.self_attn.q_proj", True),
        ("layers.3.*", "layers.33.self_attn.q_proj", False),
        ("re:.*q_proj", "layers.3.self_attn.q_proj", True),
        ("re:q_proj", "layers.3.self_attn.q_proj", False),
    ],
)
def test_what_an_entry_of_a_list_covers(entry: str, module: str, is_plain: bool) -> None:
    found = Quantization(default="mxfp8", excluded=(entry,)).declared(f"{module}.weight")
    assert found == (("plain",) if is_plain else ("mxfp8",))


def test_a_contradiction_names_the_module() -> None:
    found = Quantization(layers={"a.q_proj": "mxfp8"}, excluded=("a",), where="here")
    with pytest.raises(CheckpointError, match="here: a.q_proj is declared as mxfp8 and as plain; one is needed"):
        found.declared("a.q_proj.weight")
