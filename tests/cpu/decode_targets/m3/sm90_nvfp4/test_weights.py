"""Packing keeps what a format can hold, and loses no more than it must elsewhere."""

from __future__ import annotations

import torch

from slipstream.decode_targets.m3.sm90_nvfp4.weights import mxfp8_matrix, nvfp4_experts
from slipstream.kernels.linear.matmul_mxfp8 import layout as mxfp8_layout
from slipstream.kernels.moe.experts_nvfp4 import layout as nvfp4_layout


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def test_a_matrix_that_mxfp8_holds_is_kept_to_the_bit():
    once = mxfp8_matrix(draw(70, 128))
    values = mxfp8_layout.dequantise(once.words, once.scale_words, once.out_features)
    twice = mxfp8_matrix(values.bfloat16())
    again = mxfp8_layout.dequantise(twice.words, twice.scale_words, twice.out_features)
    assert torch.equal(values, values.bfloat16().float())
    assert torch.equal(again, values)
    assert once.num_bytes == once.words.nbytes + once.scale_words.nbytes


def test_a_product_is_that_of_the_values():
    matrix, x = mxfp8_matrix(draw(70, 128)), draw(5, 128, seed=1)
    values = mxfp8_layout.dequantise(matrix.words, matrix.scale_words, 70)
    torch.testing.assert_close(matrix.multiply(x).sum(0), x.float() @ values.T, atol=1e-3, rtol=1e-5)


def test_experts_keep_their_rows_in_place_and_share_a_factor():
    gate, up, down = draw(2, 128, 256), draw(2, 128, 256, seed=1) * 3, draw(2, 256, 128, seed=2)
    experts = nvfp4_experts(gate, up, down)
    found = nvfp4_layout.separate(nvfp4_layout.dequantise(experts.w13))
    for part, wanted in zip(found, (gate, up), strict=True):
        values = part * experts.w13_scale[:, None, None]
        assert (values - wanted.float()).norm() / wanted.float().norm() < 0.12, "four bits round by about a tenth"
    values = nvfp4_layout.dequantise(experts.w2) * experts.w2_scale[:, None, None]
    assert (values - down.float()).norm() / down.float().norm() < 0.12
    assert experts.expert_bytes * 2 == experts.w13.nbytes + experts.w2.nbytes
