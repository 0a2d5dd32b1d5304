"""The recipe's rounding to MXFP8 and the engine's are the same, though neither knows of the other."""

from __future__ import annotations

import support.demo_recipe  # noqa: F401

# isort: split
import pytest
import torch
from rounding import GROUP, dequantise, quantise, rounded
from torch import Tensor

from slipstream.weights.formats.mxfp8 import dequantise_mxfp8, quantise_mxfp8


def awkward(seed: int) -> Tensor:
    """Return [96, 128] weights of all sizes, with groups at the edges of the rule."""
    source = torch.Generator().manual_seed(seed)
    weight = torch.randn(96, 128, generator=source) * torch.logspace(-12, 4, 96)[:, None]
    weight[0] = 0.0
    weight[1, :GROUP] = 448.0 * 2.0**-9
    weight[2, :GROUP] = 448.0 * 2.0**-9 * (1 + 2.0**-20)
    weight[3, :4] = torch.tensor([1e-30, 2e-9, 448.0, 17.0])
    weight[4, :GROUP] = torch.arange(GROUP) * 0.5 + 8.25
    return weight


@pytest.mark.parametrize("seed", range(3))
def test_values_and_scales_are_those_of_the_engine(seed: int) -> None:
    values, codes = quantise(awkward(seed))
    expected_values, expected_codes = quantise_mxfp8(awkward(seed))
    assert torch.equal(codes, expected_codes)
    assert torch.equal(values.view(torch.uint8), expected_values.view(torch.uint8))
    assert torch.equal(dequantise(values, codes), dequantise_mxfp8(values, codes))


@pytest.mark.parametrize("seed", range(3))
def test_training_sees_what_is_read_back(seed: int) -> None:
    weight = awkward(seed)
    assert torch.equal(rounded(weight).bfloat16(), dequantise(*quantise(weight)).bfloat16())
    assert not torch.equal(weight.bfloat16(), rounded(weight).bfloat16())


def test_a_scale_one_step_off_is_noticed() -> None:
    weight = awkward(0)
    values, codes = quantise(weight)
    assert not torch.equal(dequantise(values, codes + 1), rounded(weight))


def test_the_gradient_passes_through_unchanged() -> None:
    weight = awkward(1).requires_grad_()
    factor = torch.linspace(-1, 1, weight.numel()).view_as(weight)
    (rounded(weight) * factor).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, factor)
