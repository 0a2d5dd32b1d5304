"""`draw_tokens` in Triton: the top of every chunk of a row, then the best noisy score of each chunk, then of the row.

Equal scores go to the first column, within a chunk and between chunks, so the cut into chunks does not show.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.sampling.gumbel_noise.triton_impl import noise_of

_BLOCK = 4096


@triton.jit
def chunk_top_kernel(logits_ptr, top_ptr, size, row_stride, num_chunks, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    column = chunk * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + row * row_stride + column, mask=column < size, other=float("-inf"))
    # A maximum drops NaN: such a row takes +inf instead, which marks it as well.
    logits = tl.where(logits == logits, logits, float("inf"))
    tl.store(top_ptr + row * num_chunks + chunk, tl.max(logits, 0))


@triton.jit
def chunk_best_kernel(
    logits_ptr,
    top_ptr,
    temperature_ptr,
    seed_ptr,
    position_ptr,
    ids_ptr,
    score_ptr,
    column_ptr,
    size,
    row_stride,
    num_chunks,
    HAS_NOISE: tl.constexpr,
    HAS_IDS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    column = chunk * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < size
    score = tl.load(logits_ptr + row * row_stride + column, mask=is_inside, other=float("-inf"))
    if HAS_NOISE:
        temperature = tl.load(temperature_ptr + row)
        chunks = tl.arange(0, BLOCK_CHUNKS)
        tops = tl.load(top_ptr + row * num_chunks + chunks, mask=chunks < num_chunks, other=float("-inf"))
        top = tl.max(tops, 0)
        is_sound = (top > float("-inf")) & (top < float("inf"))
        score = tl.where(is_inside, tl.where(is_sound, score - top, 0.0), float("-inf"))
        if temperature > 0:
            ids = tl.load(ids_ptr + column, mask=is_inside, other=0) if HAS_IDS else column.to(tl.int64)
            noise = noise_of(tl.load(seed_ptr + row), tl.load(position_ptr + row), ids)
            # HAZARD: the plain operator divides to within two units in the last place; draws must equal the host's.
            score = tl.div_rn(score, tl.zeros_like(score) + temperature) + noise
    # NaN ranks lowest; a row of nothing else still gives a column.
    score = tl.where(score == score, score, float("-inf"))
    best = tl.max(score, 0)
    first = tl.min(tl.where((score == best) & is_inside, column, size), 0)
    tl.store(score_ptr + row * num_chunks + chunk, best)
    tl.store(column_ptr + row * num_chunks + chunk, first)


@triton.jit
def row_best_kernel(
    score_ptr, column_ptr, ids_ptr, out_ptr, size, num_chunks, HAS_IDS: tl.constexpr, BLOCK_CHUNKS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    chunks = tl.arange(0, BLOCK_CHUNKS)
    is_chunk = chunks < num_chunks
    score = tl.load(score_ptr + row * num_chunks + chunks, mask=is_chunk, other=float("-inf"))
    column = tl.load(column_ptr + row * num_chunks + chunks, mask=is_chunk, other=size)
    best = tl.min(tl.where(score == tl.max(score, 0), column, size), 0)
    best = tl.minimum(best, size - 1).to(tl.int64)
    tl.store(out_ptr + row, tl.load(ids_ptr + best) if HAS_IDS else best)


def draw_tokens(
    logits: Tensor,
    temperature: Tensor,
    seed: Tensor,
    position: Tensor,
    token_ids: Tensor | None,
    has_noise: bool,
) -> Tensor:
    """See the contract."""
    temperature, seed, position = temperature.contiguous(), seed.contiguous(), position.contiguous()
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    num_rows, size = logits.shape
    out = torch.empty((num_rows,), dtype=torch.int64, device=logits.device)
    if not num_rows:
        return out
    block = min(_BLOCK, triton.next_power_of_2(size))
    num_chunks = triton.cdiv(size, block)
    grid = (num_rows, num_chunks)
    top = torch.empty(grid, dtype=torch.float32, device=logits.device)
    score = torch.empty_like(top)
    column = torch.empty(grid, dtype=torch.int32, device=logits.device)
    ids = column if token_ids is None else token_ids.contiguous()
    has_ids, block_chunks = token_ids is not None, triton.next_power_of_2(num_chunks)
    if has_noise:
        chunk_top_kernel[grid](logits, top, size, logits.stride(0), num_chunks, BLOCK=block, num_warps=4)
    chunk_best_kernel[grid](
        logits,
        top,
        temperature,
        seed,
        position,
        ids,
        score,
        column,
        size,
        logits.stride(0),
        num_chunks,
        HAS_NOISE=has_noise,
        HAS_IDS=has_ids,
        BLOCK=block,
        BLOCK_CHUNKS=block_chunks,
        num_warps=8,
    )
    row_best_kernel[(num_rows,)](
        score, column, ids, out, size, num_chunks, HAS_IDS=has_ids, BLOCK_CHUNKS=block_chunks, num_warps=1
    )
    return out
