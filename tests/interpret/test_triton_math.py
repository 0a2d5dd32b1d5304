"""The exponential and the logarithm of the kernels have the host's bits."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from slipstream.kernels.sampling.exact_math import exact_log, fixed_point, relative_weight
from slipstream.kernels.sampling.triton_math import exact_log as log_of
from slipstream.kernels.sampling.triton_math import fixed_point as fixed_of
from slipstream.kernels.sampling.triton_math import relative_weight as weight_of


@triton.jit
def math_kernel(score_ptr, weight_ptr, log_ptr, mass_ptr, size, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    mask = place < size
    weight = weight_of(tl.load(score_ptr + place, mask=mask, other=0.0))
    tl.store(weight_ptr + place, weight, mask=mask)
    tl.store(log_ptr + place, log_of(weight), mask=mask)
    tl.store(mass_ptr + place, fixed_of(weight, 40), mask=mask)


def test_weights_logarithms_and_masses_have_the_bits_of_the_host():
    generator = torch.Generator().manual_seed(0)
    spread = [-torch.rand(10_000, generator=generator) * scale for scale in (1e-38, 1e-6, 1.0, 30.0, 800.0)]
    scores = torch.cat([*spread, torch.tensor([0.0, -0.0, -math.inf, -700.0])])
    weight, log = (torch.empty(len(scores), dtype=torch.float64) for _ in range(2))
    mass = torch.empty(len(scores), dtype=torch.int64)
    grid = (triton.cdiv(len(scores), 4096),)
    math_kernel[grid](scores, weight, log, mass, len(scores), block=4096, enable_fp_fusion=False)
    assert torch.equal(weight, relative_weight(scores))
    assert torch.equal(log, exact_log(weight))
    assert torch.equal(mass, fixed_point(weight, 40))
