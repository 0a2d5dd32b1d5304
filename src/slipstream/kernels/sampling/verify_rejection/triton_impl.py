"""`verify_rejection` in Triton: tops and totals of every chunk, one verdict per request, then a draw from one row.

Only the row of the cut is drawn from, so the logarithms are taken once per request and not once per draft. Equal scores
go to the first column, within a chunk and between chunks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.sampling import purposes
from slipstream.kernels.sampling.gumbel_noise.triton_impl import noise_of, uniform_of
from slipstream.kernels.sampling.triton_math import exact_log, fixed_point, relative_weight, wide
from slipstream.kernels.sampling.verify_rejection import reference

_BLOCK = 2048
_SMALL_BLOCK = 256
# One compiled kernel serves every vocabulary and ladder.
_STRIDES = ["req_stride", "row_stride", "probs_req_stride", "probs_row_stride"]
_NUMBERS = ["size", "num_chunks", "draft_len", *_STRIDES]

TOTAL_BITS = tl.constexpr(reference.TOTAL_BITS)
ACCEPT_SALT = tl.constexpr(purposes.salt_of(purposes.Purpose.ACCEPT))
RESIDUAL_SALT = tl.constexpr(purposes.salt_of(purposes.Purpose.RESIDUAL))


@triton.jit(do_not_specialize=_NUMBERS)
def ladder_top_kernel(logits_ptr, top_ptr, size, req_stride, row_stride, num_chunks, draft_len, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    column = chunk * BLOCK + tl.arange(0, BLOCK)
    logits_ptr += (row // draft_len) * req_stride + (row % draft_len) * row_stride
    logits = tl.load(logits_ptr + column, mask=column < size, other=float("-inf"))
    # A maximum drops NaN: such a row takes +inf instead, which marks it as well.
    logits = tl.where(logits == logits, logits, float("inf"))
    tl.store(top_ptr + row * num_chunks + chunk, tl.max(logits, 0))


@triton.jit
def row_top(top_ptr, row, num_chunks, BLOCK_CHUNKS: tl.constexpr):
    chunks = tl.arange(0, BLOCK_CHUNKS)
    return tl.max(tl.load(top_ptr + row * num_chunks + chunks, mask=chunks < num_chunks, other=float("-inf")), 0)


@triton.jit
def weights_of(logits, top, temperature):
    """Return float64 weights of float32 logits relative to the row's maximum; without a sound one all weigh 1."""
    is_sound = (top > float("-inf")) & (top < float("inf"))
    relative = tl.where(is_sound, logits, 0.0) - tl.where(is_sound, top, 0.0)
    scale = tl.where(temperature > 0, temperature, 1.0)
    # HAZARD: the plain operator divides to within two units in the last place; the verdict must be the host's.
    return relative_weight(tl.div_rn(relative, tl.zeros_like(relative) + scale))


@triton.jit(do_not_specialize=_NUMBERS)
def ladder_total_kernel(
    logits_ptr,
    top_ptr,
    temperature_ptr,
    total_ptr,
    size,
    req_stride,
    row_stride,
    num_chunks,
    draft_len,
    BLOCK: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    column = chunk * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < size
    request = row // draft_len
    top = row_top(top_ptr, row, num_chunks, BLOCK_CHUNKS)
    logits_ptr += request * req_stride + (row % draft_len) * row_stride
    logits = tl.load(logits_ptr + column, mask=is_inside, other=float("-inf"))
    weight = weights_of(logits, top, tl.load(temperature_ptr + request))
    total = tl.sum(tl.where(is_inside, fixed_point(weight, TOTAL_BITS), 0), 0)
    tl.store(total_ptr + row * num_chunks + chunk, total)


@triton.jit
def row_total(total_ptr, row, num_chunks, BLOCK_CHUNKS: tl.constexpr):
    """Return the float64 sum of a row's weights."""
    chunks = tl.arange(0, BLOCK_CHUNKS)
    total = tl.sum(tl.load(total_ptr + row * num_chunks + chunks, mask=chunks < num_chunks, other=0), 0)
    return total.to(tl.float64) * wide(2.0**-TOTAL_BITS)


@triton.jit(do_not_specialize=_NUMBERS)
def judge_kernel(
    logits_ptr,
    top_ptr,
    total_ptr,
    temperature_ptr,
    draws_ptr,
    drafts_ptr,
    probs_ptr,
    seed_ptr,
    position_ptr,
    accepted_ptr,
    emitted_ptr,
    req_stride,
    row_stride,
    probs_req_stride,
    probs_row_stride,
    num_chunks,
    draft_len,
    HAS_PROBS: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
):
    """Count the drafts that stay, and write the ladder as if the first rejected one were the row's own draw."""
    request = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperature_ptr + request)
    seed = tl.load(seed_ptr + request) ^ ACCEPT_SALT
    position = tl.load(position_ptr + request)
    accepted = tl.full((), 0, tl.int64)
    for place in range(draft_len):
        draw = tl.load(draws_ptr + request * (draft_len + 1) + place)
        draft = tl.load(drafts_ptr + request * draft_len + place)
        token = tl.maximum(draft, 0)
        row = request * draft_len + place
        top = row_top(top_ptr, row, num_chunks, BLOCK_CHUNKS)
        logit = tl.load(logits_ptr + request * req_stride + place * row_stride + token)
        target = weights_of(logit, top, temperature) / row_total(total_ptr, row, num_chunks, BLOCK_CHUNKS)
        threshold = uniform_of(seed, position + 1 + place, tl.full((), 0, tl.int64))
        if HAS_PROBS:
            q = tl.load(probs_ptr + request * probs_req_stride + place * probs_row_stride + token)
            threshold = threshold * q.to(tl.float64)
        stays = (accepted == place) & (draft >= 0) & (threshold < target)
        accepted += stays.to(tl.int64)
        tl.store(emitted_ptr + request * (draft_len + 1) + place, tl.where(stays, draft, draw))
    last = request * (draft_len + 1) + draft_len
    tl.store(emitted_ptr + last, tl.load(draws_ptr + last))
    tl.store(accepted_ptr + request, accepted)


@triton.jit
def best_of(weight, noise, column, is_inside, size):
    """Return the best noisy score of a chunk and its first column."""
    score = tl.where(is_inside, exact_log(weight) + noise.to(tl.float64), wide(float("-inf")))
    best = tl.max(score, 0)
    return best, tl.min(tl.where((score == best) & is_inside, column, size), 0)


@triton.jit(do_not_specialize=_NUMBERS)
def residual_kernel(
    logits_ptr,
    top_ptr,
    total_ptr,
    temperature_ptr,
    drafts_ptr,
    probs_ptr,
    seed_ptr,
    position_ptr,
    accepted_ptr,
    score_ptr,
    column_ptr,
    size,
    req_stride,
    row_stride,
    probs_req_stride,
    probs_row_stride,
    num_chunks,
    draft_len,
    HAS_PROBS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
):
    """Draw from one chunk of the row of the cut: from the residual and, if that may be nothing, from the target."""
    request = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    column = chunk * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < size
    accepted = tl.load(accepted_ptr + request)
    cut = tl.minimum(accepted, draft_len - 1)
    draft = tl.load(drafts_ptr + request * draft_len + cut)
    if (accepted < draft_len) & (draft >= 0):
        row = request * draft_len + cut
        top = row_top(top_ptr, row, num_chunks, BLOCK_CHUNKS)
        logits_ptr += request * req_stride + cut * row_stride
        logits = tl.load(logits_ptr + column, mask=is_inside, other=float("-inf"))
        weight = weights_of(logits, top, tl.load(temperature_ptr + request))
        target = weight / row_total(total_ptr, row, num_chunks, BLOCK_CHUNKS)
        if HAS_PROBS:
            probs_ptr += request * probs_req_stride + cut * probs_row_stride
            q = tl.load(probs_ptr + column, mask=is_inside, other=0.0)
            # What is no number has no mass.
            guessed = tl.where(q > 0, q, 0.0).to(tl.float64)
        else:
            guessed = (column == draft).to(tl.float64)
        residual = tl.maximum(target - guessed, wide(0.0))
        seed = tl.load(seed_ptr + request) ^ RESIDUAL_SALT
        noise = noise_of(seed, tl.load(position_ptr + request) + 1 + cut, column.to(tl.int64))
        out = (request * 2) * num_chunks + chunk
        best, first = best_of(residual, noise, column, is_inside, size)
        tl.store(score_ptr + out, best)
        tl.store(column_ptr + out, first)
        best, first = best_of(target, noise, column, is_inside, size)
        tl.store(score_ptr + out + num_chunks, best)
        tl.store(column_ptr + out + num_chunks, first)


@triton.jit(do_not_specialize=_NUMBERS)
def finish_kernel(
    drafts_ptr,
    accepted_ptr,
    score_ptr,
    column_ptr,
    emitted_ptr,
    size,
    num_chunks,
    draft_len,
    BLOCK_CHUNKS: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    accepted = tl.load(accepted_ptr + request)
    cut = tl.minimum(accepted, draft_len - 1)
    if (accepted < draft_len) & (tl.load(drafts_ptr + request * draft_len + cut) >= 0):
        chunks = tl.arange(0, BLOCK_CHUNKS)
        is_chunk = chunks < num_chunks
        place = (request * 2) * num_chunks + chunks
        score = tl.load(score_ptr + place, mask=is_chunk, other=float("-inf"))
        if tl.max(score, 0) == float("-inf"):
            # The residual is nothing: the target itself.
            place += num_chunks
            score = tl.load(score_ptr + place, mask=is_chunk, other=float("-inf"))
        column = tl.load(column_ptr + place, mask=is_chunk, other=size)
        best = tl.min(tl.where(score == tl.max(score, 0), column, size), 0)
        tl.store(emitted_ptr + request * (draft_len + 1) + cut, tl.minimum(best, size - 1).to(tl.int64))


def verify_rejection(
    logits: Tensor,
    temperature: Tensor,
    draws: Tensor,
    draft_tokens: Tensor,
    draft_probs: Tensor | None,
    seed: Tensor,
    base_positions: Tensor,
) -> tuple[Tensor, Tensor]:
    """See the contract."""
    num_reqs, query_len, size = logits.shape
    draft_len = query_len - 1
    accepted = torch.empty((num_reqs,), dtype=torch.int64, device=logits.device)
    if not draft_len or not num_reqs:
        return accepted.zero_(), draws
    emitted = torch.empty((num_reqs, query_len), dtype=torch.int64, device=logits.device)
    logits = logits if logits.stride(2) == 1 else logits.contiguous()
    temperature, seed, base_positions = temperature.contiguous(), seed.contiguous(), base_positions.contiguous()
    draws, drafts = draws.contiguous(), draft_tokens.contiguous()
    probs = draft_probs
    if probs is None or probs.stride(2) != 1:
        probs = logits if probs is None else probs.contiguous()
    block = _BLOCK if size > _SMALL_BLOCK else _SMALL_BLOCK
    num_chunks = triton.cdiv(size, block)
    grid = (num_reqs * draft_len, num_chunks)
    top = torch.empty(grid, dtype=torch.float32, device=logits.device)
    total = torch.empty(grid, dtype=torch.int64, device=logits.device)
    score = torch.empty((num_reqs, 2, num_chunks), dtype=torch.float64, device=logits.device)
    column = torch.empty((num_reqs, 2, num_chunks), dtype=torch.int32, device=logits.device)
    places = (size, *logits.stride()[:2], num_chunks, draft_len)
    strides = (*logits.stride()[:2], *probs.stride()[:2], num_chunks, draft_len)
    blocks = {"BLOCK": block, "BLOCK_CHUNKS": triton.next_power_of_2(num_chunks)}
    chunks = {"BLOCK_CHUNKS": blocks["BLOCK_CHUNKS"]}
    exact = {"enable_fp_fusion": False}
    ladder = {"HAS_PROBS": draft_probs is not None, **exact}
    ladder_top_kernel[grid](logits, top, *places, BLOCK=block, num_warps=4)
    ladder_total_kernel[grid](logits, top, temperature, total, *places, **blocks, **exact, num_warps=4)
    rows = (logits, top, total, temperature)
    judge_kernel[(num_reqs,)](
        *rows, draws, drafts, probs, seed, base_positions, accepted, emitted, *strides, **ladder, **chunks, num_warps=1
    )
    requests = (drafts, probs, seed, base_positions, accepted, score, column, size)
    residual_kernel[(num_reqs, num_chunks)](*rows, *requests, *strides, **ladder, **blocks, num_warps=8)
    finish_kernel[(num_reqs,)](
        drafts, accepted, score, column, emitted, size, num_chunks, draft_len, **chunks, num_warps=1
    )
    return accepted, emitted
