"""What the two attention kernels share in Triton: one step of a running softmax, and the merge of partial sums.

Keys are dealt to the splits of a row tile by tile, round and round: which split reads a key depends on the key's place
alone, never on lengths or on the batch, and every sum has one order. Scales of stored keys are folded into the scale of
the products, those of values into the merge.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

DECODE_TOKENS = 512
"""Up to so many query tokens a batch is taken for ladders, whose rows need splits to fill the device."""


@triton.jit
def attend_tile(queries, keys, values, is_seen, scale, best, total, mixed):
    """Add one tile of keys to a running softmax.

    Args:
        queries: [rows, dim] float32 or bfloat16.
        keys: [dim, keys] of the queries' dtype; zeros where not seen.
        values: [keys, dim]; zeros where not seen.
        is_seen: [rows, keys].
        scale: of the products.
        best, total, mixed: [rows], [rows], [rows, dim] float32; largest product, sum of weights, weighted values.
    """
    scores = tl.dot(queries, keys, input_precision="ieee") * scale
    scores = tl.where(is_seen, scores, float("-inf"))
    new_best = tl.maximum(best, tl.max(scores, 1))
    # A row that has seen nothing yet keeps -inf, whose difference to itself is no number.
    safe = tl.where(new_best == float("-inf"), 0.0, new_best)
    weights = tl.exp(scores - safe[:, None])
    fade = tl.exp(best - safe)
    total = total * fade + tl.sum(weights, 1)
    mixed = mixed * fade[:, None]
    if values.dtype == tl.float32:
        mixed = tl.dot(weights, values, mixed, input_precision="ieee")
    else:
        # Two bfloat16 parts carry 16 bits of each weight: one would show in the result.
        coarse = weights.to(values.dtype)
        fine = (weights - coarse.to(tl.float32)).to(values.dtype)
        mixed = tl.dot(coarse, values, mixed)
        mixed = tl.dot(fine, values, mixed)
    return new_best, total, mixed


@triton.jit
def store_part(
    mixed_ptr, stats_ptr, row, split, num_splits, is_row, lanes, is_lane, best, total, mixed, DIM: tl.constexpr
):
    """Write what one split of each row summed up: [rows, splits, DIM] and [rows, splits, 2] float32."""
    place = row * num_splits + split
    tl.store(mixed_ptr + place[:, None] * DIM + lanes[None, :], mixed, mask=is_row[:, None] & is_lane[None, :])
    tl.store(stats_ptr + place * 2, best, mask=is_row)
    tl.store(stats_ptr + place * 2 + 1, total, mask=is_row)


@triton.jit(do_not_specialize=["out_scale"])
def merge_splits_kernel(
    mixed_ptr,
    stats_ptr,
    out_ptr,
    num_splits,
    out_scale,
    DIM: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_DIM)
    splits = tl.arange(0, BLOCK_SPLITS)
    is_split = splits < num_splits
    place = row * num_splits + splits
    # Everything is on its way at once; sums over the splits are trees of one shape, whatever the batch.
    is_part = is_split[:, None] & (lanes < DIM)[None, :]
    mixed = tl.load(mixed_ptr + place[:, None] * DIM + lanes[None, :], mask=is_part, other=0.0)
    best = tl.load(stats_ptr + place * 2, mask=is_split, other=float("-inf"))
    total = tl.load(stats_ptr + place * 2 + 1, mask=is_split, other=0.0)
    highest = tl.max(best, 0)
    fade = tl.exp(best - tl.where(highest == float("-inf"), 0.0, highest))
    total = tl.sum(fade * total, 0)
    # A split that saw nothing fades to nothing: what it stored is zero, or it would be NaN here.
    result = tl.sum(fade[:, None] * mixed, 0)
    result = tl.where(total == 0.0, 0.0, result / tl.where(total == 0.0, 1.0, total)) * out_scale
    tl.store(out_ptr + row * DIM + lanes, result.to(out_ptr.dtype.element_ty), mask=lanes < DIM)


def part_buffers(num_rows: int, num_splits: int, dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return room for partial sums and their statistics."""
    mixed = torch.empty((num_rows, num_splits, dim), dtype=torch.float32, device=device)
    return mixed, torch.empty((num_rows, num_splits, 2), dtype=torch.float32, device=device)


def merge_splits(mixed: Tensor, stats: Tensor, out: Tensor, out_scale: float = 1.0) -> None:
    """Merge the partial sums of every row into its attention.

    Args:
        mixed: [num_rows, num_splits, dim] float32.
        stats: [num_rows, num_splits, 2] float32.
        out: [num_rows, dim]; written; zeros where no split saw a key.
        out_scale: of the values.
    """
    num_rows, num_splits, dim = mixed.shape
    is_device = mixed.device.type != "cpu"
    merge_splits_kernel[(num_rows,)](
        mixed,
        stats,
        out,
        num_splits,
        out_scale,
        DIM=dim,
        BLOCK_SPLITS=triton.next_power_of_2(num_splits),
        BLOCK_DIM=triton.next_power_of_2(dim),
        IS_DEPENDENT=is_device,
        num_warps=1 if num_splits <= 32 else 4,
        launch_pdl=is_device,
    )
