"""`filter_logits` in Triton, without a sort: the cuts of top-k and top-p are found digit by digit.

A scaled logit is 0 or less, so its bits without the sign order the tokens: the smaller the key, the more likely. The
tokens that stay are those before a key, and of the tokens at that key the first few by token id. Three digits make a
key; for each, every chunk of a row adds to a histogram (of tokens for top-k, of mass for top-p), and one program per
row chooses the bin in which the cut lies. All sums are integers, so the order of the additions does not show.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.sampling.filter_logits import reference
from slipstream.kernels.sampling.triton_math import fixed_point, relative_weight

_BLOCK = 4096
_SMALL_BLOCK = 256
_DIGITS = ((20, 2048), (10, 1024), (0, 1024))  # shift of the digit, number of its values
_NUM_BINS = sum(bins for _, bins in _DIGITS)
# One compiled kernel serves every vocabulary and digit.
_NUMBERS = ["size", "row_stride", "num_chunks", "num_zeros", "shift", "num_bins", "last_shift"]

EXCLUDED = tl.constexpr(0x7F800000)  # the key of a score of -inf
MASS_BITS = tl.constexpr(reference.MASS_BITS)
# What a row has found so far, as int64.
KEY_K = tl.constexpr(0)  # the key of the last token that top-k leaves; its leading digits until all are known
TIES_K = tl.constexpr(1)  # how many tokens at that key top-k leaves; how many are missing until then
KEY_P = tl.constexpr(2)  # the same for top-p
TIES_P = tl.constexpr(3)
MASS = tl.constexpr(4)  # before the leading digits of KEY_P
TOTAL = tl.constexpr(5)
NUM_FOUND = tl.constexpr(6)


@triton.jit(do_not_specialize=_NUMBERS)
def start_kernel(
    logits_ptr, top_ptr, bins_ptr, size, row_stride, num_chunks, BLOCK: tl.constexpr, NUM_ZEROS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    column = chunk * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + row * row_stride + column, mask=column < size, other=float("-inf"))
    # A maximum drops NaN: such a row takes +inf instead, which marks it as well.
    logits = tl.where(logits == logits, logits, float("inf"))
    tl.store(top_ptr + row * num_chunks + chunk, tl.max(logits, 0))
    if chunk == 0:
        for start in tl.static_range(0, NUM_ZEROS, 1024):
            tl.store(bins_ptr + row * NUM_ZEROS + start + tl.arange(0, 1024), tl.zeros((1024,), tl.int64))


@triton.jit
def row_top(top_ptr, row, num_chunks, BLOCK_CHUNKS: tl.constexpr):
    chunks = tl.arange(0, BLOCK_CHUNKS)
    return tl.max(tl.load(top_ptr + row * num_chunks + chunks, mask=chunks < num_chunks, other=float("-inf")), 0)


@triton.jit
def is_filtered(top, temperature):
    return (top > float("-inf")) & (top < float("inf")) & (temperature > 0)


@triton.jit
def keys_of(logits, top, temperature, min_p):
    """Return int32 keys of a filtered row's logits; `EXCLUDED` below min-p."""
    # HAZARD: the plain operator divides to within two units in the last place; the cut must be the host's.
    score = tl.div_rn(logits - top, tl.zeros_like(logits) + temperature)
    key = score.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    if min_p != 0:
        key = tl.where(relative_weight(score) >= min_p.to(tl.float64), key, EXCLUDED)
    return key


@triton.jit
def mass_of(key):
    return fixed_point(relative_weight(-key.to(tl.float32, bitcast=True)), MASS_BITS)


@triton.jit(do_not_specialize=_NUMBERS)
def count_kernel(
    logits_ptr,
    top_ptr,
    temperature_ptr,
    min_p_ptr,
    limit_ptr,
    bins_ptr,
    found_ptr,
    size,
    row_stride,
    num_chunks,
    num_zeros,
    shift,
    num_bins,
    last_shift,
    OF_MASS: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
):
    """Add one chunk of a row to the histogram of one digit, of tokens or of mass; `limit_ptr` is top-k or top-p."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < size
    temperature = tl.load(temperature_ptr + row)
    limit = tl.load(limit_ptr + row)
    top = row_top(top_ptr, row, num_chunks, BLOCK_CHUNKS)
    is_on = (limit < 1) if OF_MASS else (limit > 0) & (limit < size)
    if is_on & is_filtered(top, temperature):
        logits = tl.load(logits_ptr + row * row_stride + column, mask=is_inside, other=float("-inf"))
        key = keys_of(logits, top, temperature, tl.load(min_p_ptr + row))
        counts = is_inside
        if OF_MASS:
            # Tokens at the key of top-k count in part; who chooses the bin adds them.
            counts = counts & (key < tl.load(found_ptr + row * NUM_FOUND + KEY_K))
        if last_shift > 0:
            counts = counts & (
                (key >> last_shift) == tl.load(found_ptr + row * NUM_FOUND + (KEY_P if OF_MASS else KEY_K))
            )
        digit = (key >> shift) & (num_bins - 1)
        bins_ptr += row * num_zeros
        if OF_MASS:
            if tl.max(counts.to(tl.int32), 0) > 0:
                mass = mass_of(key)
                tl.atomic_add(bins_ptr + digit, mass, mask=counts & (mass > 0), sem="relaxed")
        else:
            bins = tl.arange(0, BINS)
            num_tokens = tl.histogram(digit, BINS, mask=counts)
            tl.atomic_add(bins_ptr + bins, num_tokens.to(tl.int64), mask=num_tokens > 0, sem="relaxed")


@triton.jit(do_not_specialize=_NUMBERS)
def choose_top_k_kernel(
    top_k_ptr, bins_ptr, found_ptr, size, num_zeros, shift, num_bins, last_shift, BINS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    found_ptr += row * NUM_FOUND
    top_k = tl.load(top_k_ptr + row).to(tl.int64)
    key = tl.full((), EXCLUDED, tl.int64)
    missing = tl.full((), 0, tl.int64) + size
    if (top_k > 0) & (top_k < size):
        bins = tl.arange(0, BINS)
        num_tokens = tl.load(bins_ptr + row * num_zeros + bins, mask=bins < num_bins, other=0)
        missing = top_k
        lead = tl.full((), 0, tl.int64)
        if last_shift > 0:
            lead = tl.load(found_ptr + KEY_K)
            missing = tl.load(found_ptr + TIES_K)
        digit = tl.sum((tl.cumsum(num_tokens, 0) < missing).to(tl.int32), 0)
        missing -= tl.sum(tl.where(bins < digit, num_tokens, 0), 0)
        key = lead * num_bins + digit
    tl.store(found_ptr + KEY_K, key)
    tl.store(found_ptr + TIES_K, missing)


@triton.jit(do_not_specialize=_NUMBERS)
def choose_top_p_kernel(
    top_p_ptr,
    bins_ptr,
    found_ptr,
    size,
    num_zeros,
    shift,
    num_bins,
    last_shift,
    BINS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    found_ptr += row * NUM_FOUND
    top_p = tl.load(top_p_ptr + row)
    key_k = tl.load(found_ptr + KEY_K)
    ties_k = tl.load(found_ptr + TIES_K)
    key = key_k
    ties = ties_k
    # What is no number is on, as in the reference.
    if (top_p >= 1) == 0:
        bins = tl.arange(0, BINS)
        masses = tl.load(bins_ptr + row * num_zeros + bins, mask=bins < num_bins, other=0)
        lead = tl.full((), 0, tl.int64)
        before = tl.full((), 0, tl.int64)
        has_ties = key_k >= 0
        if last_shift > 0:
            lead = tl.load(found_ptr + KEY_P)
            before = tl.load(found_ptr + MASS)
            has_ties = (key_k >> last_shift) == lead
        is_tie_bin = (bins == ((key_k >> shift) & (num_bins - 1))) & has_ties
        masses += tl.where(is_tie_bin, mass_of(key_k.to(tl.int32)) * ties_k, 0)
        total = tl.sum(masses, 0)
        if last_shift > 0:
            total = tl.load(found_ptr + TOTAL)
        allowance = top_p.to(tl.float64) * total.to(tl.float64)
        starts = before + tl.cumsum(masses, 0) - masses
        # The last token that stays is the last with less than the allowance before it; without mass none is.
        digit = tl.max(tl.where((masses > 0) & (starts.to(tl.float64) < allowance), bins, 0), 0)
        before += tl.sum(tl.where(bins < digit, masses, 0), 0)
        key = lead * num_bins + digit
        tl.store(found_ptr + MASS, before)
        tl.store(found_ptr + TOTAL, total)
        if shift == 0:
            mass = mass_of(key.to(tl.int32))
            # Bisection: of the tokens at this key stay as many as begin below the allowance.
            low = tl.full((), 0, tl.int64)
            high = tl.full((), 0, tl.int64) + size
            while low < high:
                middle = (low + high) // 2
                is_below = (before + middle * mass).to(tl.float64) < allowance
                low = tl.where(is_below, middle + 1, low)
                high = tl.where(is_below, high, middle)
            ties = tl.maximum(low, 1)
            ties = tl.where(key == key_k, tl.minimum(ties, ties_k), ties)
    tl.store(found_ptr + KEY_P, key)
    tl.store(found_ptr + TIES_P, ties)


@triton.jit(do_not_specialize=_NUMBERS)
def tie_kernel(
    logits_ptr,
    top_ptr,
    temperature_ptr,
    min_p_ptr,
    found_ptr,
    out_ptr,
    size,
    row_stride,
    num_chunks,
    num_ties_ptr,
    WRITES: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
):
    """Count a chunk's tokens at the cut; once all chunks are counted, write what stays."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    column = chunk * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < size
    temperature = tl.load(temperature_ptr + row)
    top = row_top(top_ptr, row, num_chunks, BLOCK_CHUNKS)
    logits = tl.load(logits_ptr + row * row_stride + column, mask=is_inside, other=float("-inf"))
    num_ties_ptr += row * num_chunks
    if is_filtered(top, temperature):
        min_p = tl.load(min_p_ptr + row)
        key = keys_of(logits, top, temperature, min_p)
        cut = tl.load(found_ptr + row * NUM_FOUND + KEY_P)
        is_tie = ((key == cut) & is_inside).to(tl.int32)
        if WRITES:
            chunks = tl.arange(0, BLOCK_CHUNKS)
            before = tl.sum(tl.load(num_ties_ptr + chunks, mask=chunks < chunk, other=0), 0)
            is_first = before + tl.cumsum(is_tie, 0) <= tl.load(found_ptr + row * NUM_FOUND + TIES_P)
            keeps = (key < cut) | ((is_tie > 0) & is_first)
            if min_p != 0:
                keeps = keeps & (key < EXCLUDED)
            logits = tl.where(keeps, logits, float("-inf"))
        else:
            tl.store(num_ties_ptr + chunk, tl.sum(is_tie, 0))
    if WRITES:
        tl.store(out_ptr + row * size + column, logits, mask=is_inside)


def filter_logits(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """See the contract."""
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    temperature, top_k = temperature.contiguous(), top_k.contiguous()
    top_p, min_p = top_p.contiguous(), min_p.contiguous()
    num_rows, size = logits.shape
    out = torch.empty((num_rows, size), dtype=torch.float32, device=logits.device)
    if not out.numel():
        return out
    block = _BLOCK if size > _SMALL_BLOCK else _SMALL_BLOCK
    grid = (num_rows, triton.cdiv(size, block))
    num_zeros = 2 * _NUM_BINS
    top = torch.empty(grid, dtype=torch.float32, device=logits.device)
    num_ties = torch.empty(grid, dtype=torch.int32, device=logits.device)
    bins = torch.empty((num_rows, num_zeros), dtype=torch.int64, device=logits.device)
    found = torch.empty((num_rows, NUM_FOUND.value), dtype=torch.int64, device=logits.device)
    places = (size, logits.stride(0), grid[1])
    blocks = {"BLOCK": block, "BLOCK_CHUNKS": triton.next_power_of_2(grid[1])}
    exact = {"num_warps": 8, "enable_fp_fusion": False}
    start_kernel[grid](logits, top, bins, *places, BLOCK=block, NUM_ZEROS=num_zeros, num_warps=4)
    rows = (logits, top, temperature, min_p)
    max_bins = {"BINS": _DIGITS[0][1]}
    start = 0
    for of_mass, limit in ((False, top_k), (True, top_p)):
        choose = choose_top_p_kernel if of_mass else choose_top_k_kernel
        last_shift = 0
        for shift, num_bins in _DIGITS:
            digit = (num_zeros, shift, num_bins, last_shift)
            own = bins[:, start:]
            count_kernel[grid](
                *rows, limit, own, found, *places, *digit, OF_MASS=of_mass, **max_bins, **blocks, **exact
            )
            choose[(num_rows,)](limit, own, found, size, *digit, **max_bins, **exact)
            start, last_shift = start + num_bins, shift
    for writes in (False, True):
        tie_kernel[grid](*rows, found, out, *places, num_ties, WRITES=writes, **blocks, **exact)
    return out
