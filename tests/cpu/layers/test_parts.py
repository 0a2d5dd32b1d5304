"""Parts say where checkpoint tensors land; on any number of ranks they cover every parameter exactly."""

from __future__ import annotations

import pytest
import torch

from slipstream.layers.parts import (
    WHOLE,
    DirectModule,
    WeightPart,
    empty_parameter,
    head_rows,
    matrix_parameter,
    part_named,
    rows,
)
from slipstream.parallel.group import one_rank
from support.layer_jobs import LAYERS, build
from support.layer_parts import fill, make_full, modules_with_parts, run_ranks

NAMES = {
    "embedding": {("", "")},
    "lm_head": {("", "")},
    "mlp": {("gate_up_proj", "gate"), ("gate_up_proj", "up"), ("down_proj", "")},
    "moe": {
        ("router", ""),
        ("router", "bias"),
        ("experts", "gate"),
        ("experts", "up"),
        ("experts", "down"),
        ("shared.gate_up_proj", "gate"),
        ("shared.gate_up_proj", "up"),
        ("shared.down_proj", ""),
    },
    "attention_dense": {
        *[("qkv_proj", name) for name in ("q", "k", "v")],
        *[("qk_norm", name) for name in ("q", "k")],
        ("o_proj", ""),
    },
    "attention_sparse": {
        *[("qkv_proj", name) for name in ("q", "k", "v", "index_q", "index_k")],
        *[("qk_norm", name) for name in ("q", "k", "index_q", "index_k")],
        ("o_proj", ""),
    },
}


@pytest.mark.parametrize("layer", LAYERS)
def test_names_are_stable(layer):
    module = build(layer, one_rank())
    assert set(make_full(module)) == NAMES[layer]
    held = {
        f"{path}.{part.parameter}".lstrip(".") for path, child in modules_with_parts(module) for part in child.parts
    }
    assert {name for name, _ in module.named_parameters()} == held


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("tp_size", [1, 2, 4])
def test_parts_cover_every_element_once(layer, tp_size):
    """`fill` writes NaN first and fails on what is left; the sizes of the parts add up, so none overlaps."""
    full = make_full(build(layer, one_rank()))

    def count(group):
        module = fill(build(layer, group), full)
        sizes = 0
        for path, child in modules_with_parts(module):
            for part in child.parts:
                tensor = full[path, part.name]
                lead = (WHOLE,) if tensor.dim() > len(part.source) else ()
                sizes += tensor[(*lead, *part.source)].numel()
        return sizes, sum(p.numel() for p in module.parameters())

    for sizes, held in run_ranks(tp_size, count) if tp_size > 1 else [count(one_rank())]:
        assert sizes == held


def test_a_part_is_found_by_name():
    part = WeightPart("weight", "q", (slice(0, 2), WHOLE), (slice(4, 6), WHOLE))
    assert part_named((part,), "q") is part
    with pytest.raises(KeyError, match="k"):
        part_named((part,), "k")


def test_rows_of_heads():
    assert head_rows(range(2, 4), 16) == range(32, 64)
    assert rows(range(32, 64)) == slice(32, 64)


def test_parameters_start_empty_and_without_a_gradient():
    parameter = empty_parameter(2, 3, dtype=torch.bfloat16, device="meta")
    assert parameter.shape == (2, 3)
    assert parameter.dtype == torch.bfloat16
    assert not parameter.requires_grad


@pytest.mark.parametrize("layer", LAYERS)
def test_no_parameter_asks_for_a_gradient(layer):
    assert not any(parameter.requires_grad for parameter in build(layer, one_rank()).parameters())


def test_float32_matrices_lie_column_by_column_on_the_cpu():
    matrix = matrix_parameter(5, 3, dtype=torch.float32, device="cpu")
    assert (matrix.shape, matrix.stride()) == ((5, 3), (1, 5))
    stacked = matrix_parameter(2, 5, 3, dtype=torch.float32, device="cpu")
    assert (stacked.shape, stacked[1].stride()) == ((2, 5, 3), (1, 5))
    assert not matrix.requires_grad


@pytest.mark.parametrize(("dtype", "device"), [(torch.bfloat16, "cpu"), (torch.float32, "meta")])
def test_other_matrices_lie_row_by_row(dtype, device):
    assert matrix_parameter(5, 3, dtype=dtype, device=device).is_contiguous()


def test_a_direct_module_finds_what_it_registered():
    """The attribute is the registered object, also after it was replaced, as a tied head is."""
    module, other = DirectModule(), empty_parameter(2, dtype=torch.float32, device="cpu")
    module.weight = empty_parameter(2, dtype=torch.float32, device="cpu")
    module.child = DirectModule()
    assert vars(module)["weight"] is module.weight is dict(module.named_parameters())["weight"]
    assert vars(module)["child"] is dict(module.named_children())["child"]
    module.weight = other
    assert module.weight is other is dict(module.named_parameters())["weight"]
