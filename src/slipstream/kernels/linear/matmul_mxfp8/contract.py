"""Multiply few rows with MXFP8 weights. Not here: adding up the partial sums (`sum_parts`, or who consumes them)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.linear.matmul_mxfp8.layout import CHUNK, UNIT, UNIT_WORDS
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int16, Int64


def matmul_mxfp8(
    x: Float[Tensor, "num_tokens in_features"],
    words: Int16[Tensor, "out_units in_units unit_words"],
    scale_words: Int64[Tensor, "out_units in_chunks unit_rows"],
    out_features: int,
) -> Float32[Tensor, "num_splits num_tokens out_features"]:
    """Return partial sums of x @ weight.T, one per stretch of the inner axis.

    Whoever reads them adds them up in float32, in order of the first axis, from the first on: (p0 + p1) + p2 and so on.

    Args:
        x: [num_tokens, in_features] bfloat16. Meant for up to 64 rows; more are legal.
        words: [out_units, in_units, 2048] int16, as `layout.pack` makes them.
        scale_words: [out_units, in_units / 4 rounded up, 64] int64.
        out_features: rows of the weight matrix.

    Returns:
        [num_splits, num_tokens, out_features] float32; split s covers the inner columns from s * 64 * units on, with
        units and num_splits by `plan`, from the shape of the weights alone.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: nothing is read on the host. A device implementation may read the weights before the kernel before it has
        ended: they must have been written before the graph, or the stream's work, began.
    Numerics: weights are exact (code times power of two), products and sums float32. A row's result does not depend on
        the other rows, to the bit.
    Source: OCP Microscaling Formats 1.0 (MXFP8: e4m3 elements, e8m0 scale per 32).
    """
    if words.dim() != 3 or words.shape[2] != UNIT_WORDS or words.dtype != torch.int16:
        raise shape_fault("matmul_mxfp8", "words", words, f"[out_units, in_units, {UNIT_WORDS}] int16")
    in_chunks = -(-words.shape[1] // CHUNK)
    if scale_words.shape != (words.shape[0], in_chunks, UNIT) or scale_words.dtype != torch.int64:
        allowed = f"[{words.shape[0]}, {in_chunks}, {UNIT}] int64"
        raise shape_fault("matmul_mxfp8", "scale_words", scale_words, allowed)
    if -(-out_features // UNIT) != words.shape[0]:
        allowed = f"[{-(-out_features // UNIT)}, in_units, {UNIT_WORDS}] for {out_features} out_features"
        raise shape_fault("matmul_mxfp8", "words", words, allowed)
    if x.dim() != 2 or x.shape[1] != words.shape[1] * UNIT or x.dtype != torch.bfloat16:
        raise shape_fault("matmul_mxfp8", "x", x, f"[num_tokens, {words.shape[1] * UNIT}] bfloat16")
    function = select("linear/matmul_mxfp8", x.device.type).function
    parts: torch.Tensor = function(x, words, scale_words, out_features)
    return parts
