"""Changes of stored tensors: exact, whatever the format, and only where they can be written."""

from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import UnsupportedFeature
from slipstream.evaluation.variants.tensors import fill, find, scale_by_power_of_two, shift, shuffle, zero
from slipstream.weights.formats.mxfp8 import dequantise_mxfp8, quantise_mxfp8


def mxfp8():
    values, scales = quantise_mxfp8(torch.randn(4, 64, generator=torch.Generator().manual_seed(1)))
    return {"a.weight": values, "a.weight_scale_inv": scales}


def values_of(tensors):
    return dequantise_mxfp8(tensors["a.weight"], tensors["a.weight_scale_inv"])


def test_names_are_found_by_their_end():
    tensors = dict.fromkeys(["x.q_norm.weight", "q_norm.weight", "x.aq_norm.weight.b"], torch.zeros(1))
    assert list(find(tensors, r"q_norm[.]weight")) == ["q_norm.weight", "x.q_norm.weight"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.uint8, torch.float8_e4m3fn])
def test_zero_is_zero_in_every_format(dtype):
    tensors = {"a": torch.ones(3, 4).to(dtype)}
    zero(tensors, "a")
    assert tensors["a"].dtype == dtype
    assert tensors["a"].shape == (3, 4)
    assert tensors["a"].float().abs().max() == 0.0


def test_a_power_of_two_goes_into_the_values_or_into_the_scales():
    tensors = mxfp8()
    before = values_of(tensors)
    scale_by_power_of_two(tensors, "a.weight", -20)
    assert torch.equal(values_of(tensors), before * 2.0**-20)
    plain = {"a": torch.randn(3, 4).to(torch.bfloat16)}
    expected = plain["a"].float() * 2.0**-20
    scale_by_power_of_two(plain, "a", -20)
    assert torch.equal(plain["a"], expected)


def test_what_a_format_cannot_express_is_refused():
    tensors = {"a.weight": torch.zeros(2, 2, dtype=torch.uint8)}
    for change in (
        lambda: shift(tensors, "a.weight", 1.0),
        lambda: fill(tensors, "a.weight", 1.0),
        lambda: scale_by_power_of_two(tensors, "a.weight", 1),
    ):
        with pytest.raises(UnsupportedFeature, match="the tensor a.weight is stored as torch.uint8"):
            change()


def test_shift_and_fill_do_not_round():
    tensors = {"a": torch.tensor([0.0078125, -0.5], dtype=torch.bfloat16)}
    shift(tensors, "a", -1.0)
    assert tensors["a"].tolist() == [0.0078125 - 1.0, -1.5]
    fill(tensors, "a", 1047.576)
    assert tensors["a"].tolist() == pytest.approx([1047.576] * 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_shuffled_elements_are_the_same_in_another_order(dtype):
    before = torch.arange(64.0).reshape(8, 8).to(dtype)
    tensors = {"a": before.clone()}
    shuffle(tensors, "a", torch.Generator().manual_seed(2))
    after = tensors["a"]
    assert after.dtype == dtype
    assert torch.equal(after.float().flatten().sort().values, before.float().flatten().sort().values)
    assert (after.float() != before.float()).float().mean() > 0.7
