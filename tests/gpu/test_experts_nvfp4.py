"""NVFP4 experts on a GPU at the real model's sizes: against the reference, repeated, alone, and in a graph."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.moe.experts_nvfp4 import reference, triton_impl
from slipstream.kernels.moe.experts_nvfp4.layout import interleave, pack

HIDDEN, NUM_EXPERTS, TOPK = 6144, 24, 4


def draw_matrix(rows, columns, generator):
    codes = torch.randint(
        0, 256, (NUM_EXPERTS, rows, columns // 2), device="cuda", dtype=torch.uint8, generator=generator
    )
    scales = torch.rand(NUM_EXPERTS, rows, columns // 16, device="cuda", generator=generator) * 1.5 + 0.004
    return codes, scales.to(torch.float8_e4m3fn)


def draw(num_tokens, width, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    gate, up = (draw_matrix(width, HIDDEN, generator) for _ in range(2))
    factor = torch.rand(NUM_EXPERTS, device="cuda", generator=generator) + 0.5
    ids = torch.rand(num_tokens, NUM_EXPERTS, device="cuda", generator=generator).argsort(1)[:, :TOPK].contiguous()
    if num_tokens > 2:
        ids[-1] = -1
    return {
        "x": torch.randn(num_tokens, HIDDEN, device="cuda", generator=generator).bfloat16(),
        "expert_ids": ids,
        "expert_weights": torch.rand(num_tokens, TOPK, device="cuda", generator=generator),
        "w13": pack(*(interleave(one, other) for one, other in zip(gate, up, strict=True))),
        "w13_scale": factor / (2 * HIDDEN**0.5),
        "w2": pack(*draw_matrix(HIDDEN, width, generator)),
        "w2_scale": factor.flip(0) / (2 * width**0.5),
        "alpha": 1.702,
        "limit": 7.0,
    }


@pytest.mark.parametrize("width", [384, 768, 1536])
@pytest.mark.parametrize("num_tokens", [1, 4, 64, 300])
def test_real_sizes_agree_with_the_reference_and_with_themselves(num_tokens, width):
    inputs = draw(num_tokens, width)
    with torch.inference_mode():
        expected = reference.experts_nvfp4(**inputs).float()
        result = triton_impl.experts_nvfp4(**inputs)
        assert (result.float() - expected).norm() <= 3e-3 * expected.norm()
        for _ in range(3):
            assert torch.equal(triton_impl.experts_nvfp4(**inputs), result)
        by_token = ("x", "expert_ids", "expert_weights")
        alone = {name: value[:1] if name in by_token else value for name, value in inputs.items()}
        assert torch.equal(triton_impl.experts_nvfp4(**alone)[0], result[0])


def test_one_expert_may_take_every_token():
    inputs = draw(70, 384)
    inputs["expert_ids"] = torch.full((70, 1), 5, device="cuda")
    inputs["expert_weights"] = inputs["expert_weights"][:, :1].contiguous()
    with torch.inference_mode():
        expected = reference.experts_nvfp4(**inputs).float()
        result = triton_impl.experts_nvfp4(**inputs).float()
    assert (result - expected).norm() <= 3e-3 * expected.norm()


def test_a_graph_gives_the_same_bits_and_follows_its_inputs():
    inputs = draw(8, 384)
    with torch.inference_mode():
        triton_impl.experts_nvfp4(**inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = triton_impl.experts_nvfp4(**inputs)
        for seed in (1, 2, 3):
            for name in ("x", "expert_ids", "expert_weights"):
                inputs[name].copy_(draw(8, 384, seed)[name])
            graph.replay()
            assert torch.equal(result, triton_impl.experts_nvfp4(**inputs))
