"""`gumbel_noise` in Triton: the reference's hash in 32-bit arithmetic, the logarithms in float64."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def mix(word):
    """Return the reference's scramble of uint32 words; products wrap."""
    word = word ^ (word >> 16)
    word = word * 0x7FEB352D
    word = word ^ (word >> 15)
    word = word * 0x31848BAB
    return word ^ (word >> 16)


@triton.jit
def uniform_of(seed, position, token_ids):
    """Return float64 in (0, 1) of one row: the noise before it is shaped.

    Args:
        seed: int64.
        position: int64.
        token_ids: [columns] int64.
    """
    seed_low = (seed & 0xFFFFFFFF).to(tl.uint32)
    seed_high = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    place = (position & 0xFFFFFFFF).to(tl.uint32)
    first = mix(mix(mix(seed_low ^ 0x51ED270B) ^ seed_high) ^ place)
    second = mix(mix(mix(place ^ 0x2545F491) ^ seed_low) ^ seed_high)
    words = mix(mix(token_ids.to(tl.uint32) + first) ^ second)
    return ((words >> 9).to(tl.float64) + 0.5) * 1.1920928955078125e-07


@triton.jit
def noise_of(seed, position, token_ids):
    """Return float32 noise of one row; arguments as of `uniform_of`."""
    return (-tl.log(-tl.log(uniform_of(seed, position, token_ids)))).to(tl.float32)


@triton.jit
def gumbel_noise_kernel(seed_ptr, position_ptr, ids_ptr, out_ptr, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < size
    ids = tl.load(ids_ptr + column, mask=is_inside, other=0)
    noise = noise_of(tl.load(seed_ptr + row), tl.load(position_ptr + row), ids)
    tl.store(out_ptr + row * size + column, noise, mask=is_inside)


def gumbel_noise(seed: Tensor, position: Tensor, token_ids: Tensor) -> Tensor:
    """See the contract."""
    seed, position = seed.contiguous(), position.contiguous()
    num_rows, size = len(seed), len(token_ids)
    out = torch.empty((num_rows, size), dtype=torch.float32, device=seed.device)
    if out.numel():
        block = min(_BLOCK, triton.next_power_of_2(size))
        grid = (num_rows, triton.cdiv(size, block))
        gumbel_noise_kernel[grid](seed, position, token_ids.contiguous(), out, size, BLOCK=block, num_warps=4)
    return out
