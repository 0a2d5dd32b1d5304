from __future__ import annotations

import pytest
import torch

from slipstream.layers.mlp import DenseMlp, Silu, SwigluOai
from slipstream.parallel.group import one_rank
from support import oracles
from support.layer_parts import fill, make_full, run_ranks

PLACE = {"dtype": torch.float32, "device": "cpu"}


def make_mlp(activation, group=None, **options):
    return DenseMlp(12, 8, activation, group=group or one_rank(), **PLACE, **options)


def make_x():
    return torch.randn(5, 12, generator=torch.Generator().manual_seed(0)) * 6


def test_the_family_s_activation():
    mlp = make_mlp(SwigluOai(1.702, 7.0))
    full = make_full(mlp)
    gate_up = make_x().double() @ torch.cat([full["gate_up_proj", "gate"], full["gate_up_proj", "up"]]).double().T
    expected = oracles.swiglu_oai(gate_up, 1.702, 7.0) @ full["down_proj", ""].double().T
    assert torch.allclose(fill(mlp, full)(make_x()).double(), expected, atol=1e-5)


def test_the_activation_of_draft_heads_has_no_clamp_and_no_one():
    mlp = make_mlp(Silu())
    full = make_full(mlp)
    gate, up = make_x() @ full["gate_up_proj", "gate"].T, make_x() @ full["gate_up_proj", "up"].T
    expected = (gate * torch.sigmoid(gate) * up) @ full["down_proj", ""].T
    assert torch.allclose(fill(mlp, full)(make_x()), expected, atol=1e-5)
    clamped = fill(make_mlp(SwigluOai(1.0, 7.0)), full)(make_x())
    assert (clamped - expected).abs().max() > 0.1


@pytest.mark.parametrize("activation", [SwigluOai(1.702, 7.0), Silu()])
def test_activations_keep_the_dtype(activation):
    assert activation(torch.ones(2, 6, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_partial_sums_are_left_to_the_caller_on_request():
    mlp = make_mlp(Silu())
    full = make_full(mlp)
    whole = fill(mlp, full)(make_x())
    partial = run_ranks(2, lambda group: fill(make_mlp(Silu(), group, reduce=False), full)(make_x()))
    assert torch.allclose(partial[0] + partial[1], whole, atol=1e-5)
    assert not torch.allclose(partial[0], whole, atol=1e-2)
