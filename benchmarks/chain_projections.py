"""Products of few rows with MXFP8 weights in a chain; for `chain.py`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from chain_report import COLD_BYTES, Report, Variant, chain_us, require
from torch import Tensor

from slipstream.kernels.linear.matmul_mxfp8.layout import GROUP, dequantise, pack
from slipstream.kernels.linear.matmul_mxfp8.plan import units_per_split
from slipstream.kernels.linear.matmul_mxfp8.triton_impl import launch
from slipstream.kernels.linear.sum_parts.triton_impl import sum_parts

PROJECTIONS = {
    "tp8": {"qkv_index": (1536, 6144), "o": (6144, 1024), "gate_up": (768, 6144), "down": (6144, 384)},
    "tp4": {"qkv_index": (2432, 6144), "o": (6144, 2048), "gate_up": (1536, 6144), "down": (6144, 768)},
}
PROJECTION_VARIANTS: tuple[Variant, ...] = (
    {"units": 4, "is_early": True},
    {"units": 4, "is_early": False},
    {"units": 8, "is_early": True},
    {"units": 8, "is_early": False},
    {"units": 8, "is_early": False, "max_registers": 168},
    {"units": 8, "is_early": True, "is_dependent": False},
)


@dataclass(frozen=True)
class Weights:
    """Distinct matrices of one shape; the first is the one that is checked."""

    out_features: int
    in_features: int
    words: list[Tensor]
    scale_words: list[Tensor]

    @property
    def num_bytes(self) -> float:
        """Return the bytes of one matrix."""
        return self.out_features * self.in_features * (1 + 1 / GROUP)


def make_weights(out_features: int, in_features: int) -> Weights:
    """Return enough matrices to leave the cache cold; the others are the first one's units in another order."""
    codes = (torch.randn(out_features, in_features, device="cuda") * 32).clamp(-448, 448).to(torch.float8_e4m3fn)
    scales = torch.randint(118, 123, (out_features, in_features // GROUP), device="cuda", dtype=torch.uint8)
    words, scale_words = pack(codes, scales)
    count = max(24, int(COLD_BYTES / (out_features * in_features)) + 1)
    rolled = [words.roll(copy, 1).contiguous() for copy in range(count)]
    return Weights(out_features, in_features, rolled, [scale_words.roll(copy, 1).contiguous() for copy in range(count)])


def check_projection(weights: Weights, variant: Variant) -> None:
    """Compare one variant with float64, and each of 64 rows with the row alone."""
    x = torch.randn(64, weights.in_features, device="cuda").bfloat16()
    words, scale_words = weights.words[0], weights.scale_words[0]
    # What the result is written to was NaN before, so that a missing element shows.
    poison = torch.full((64, 64, weights.out_features), float("nan"), device="cuda")
    del poison
    parts = launch(x, words, scale_words, weights.out_features, **variant)
    exact = x.double() @ dequantise(words, scale_words, weights.out_features).double().t()
    error = (parts.double().sum(0) - exact).norm() / exact.norm()
    require(bool(error < 2e-6), f"relative error {error.item():.2e}")
    for start, end in ((0, 1), (63, 64), (5, 9), (16, 33)):
        alone = launch(x[start:end], words, scale_words, weights.out_features, **variant)
        require(torch.equal(alone, parts[:, start:end]), f"rows {start}:{end} depend on the batch")


def projection_us(weights: Weights, num_rows: int, variant: Variant, *, is_summed: bool) -> float:
    """Return microseconds of one product in a chain over all matrices, with or without the sum of its parts."""
    x = torch.randn(num_rows, weights.in_features, device="cuda").bfloat16()

    def calls() -> None:
        for words, scale_words in zip(weights.words, weights.scale_words, strict=True):
            parts = launch(x, words, scale_words, weights.out_features, **variant)
            if is_summed:
                sum_parts(parts, torch.bfloat16)

    return chain_us(calls, len(weights.words))


def time_projections(report: Report, slice_name: str, variants: tuple[Variant, ...], *, is_quick: bool) -> None:
    """Time every projection of a slice: variants at four rows, then the best and the plan's own at other numbers."""
    for name, (out_features, in_features) in PROJECTIONS[slice_name].items():
        weights = make_weights(out_features, in_features)
        planned = {"units": units_per_split(*weights.words[0].shape[:2])}
        times: list[tuple[float, Variant]] = []
        for variant in (planned, *variants):
            try:
                check_projection(weights, variant)
                us = projection_us(weights, 4, variant, is_summed=False)
            except Exception as error:  # noqa: BLE001 - whatever ails a variant, the others are timed
                report.fail(f"{slice_name} rows4", name, variant, error)
                continue
            times.append((us, variant))
            report.add(f"{slice_name} rows4", name, variant, us, weights.num_bytes)
        if not times:
            continue
        best = min(times, key=lambda pair: pair[0])[1]
        summed = projection_us(weights, 4, best, is_summed=True)
        report.add(f"{slice_name} rows4", f"{name} + sum", best, summed, weights.num_bytes)
        for num_rows in () if is_quick else (1, 8, 64):
            us = projection_us(weights, num_rows, best, is_summed=False)
            report.add(f"{slice_name} rows{num_rows}", name, best, us, weights.num_bytes)


def time_layer_chain(report: Report, slice_name: str) -> None:
    """Time the four projections of a layer one after another with their sums, with the plan's own splits."""
    shapes = PROJECTIONS[slice_name]
    matrices = [make_weights(*shape) for shape in shapes.values()]
    inputs = [torch.randn(4, one.in_features, device="cuda").bfloat16() for one in matrices]

    def calls() -> None:
        for layer in range(24):
            for x, one in zip(inputs, matrices, strict=True):
                units = units_per_split(*one.words[layer].shape[:2])
                parts = launch(x, one.words[layer], one.scale_words[layer], one.out_features, units)
                sum_parts(parts, torch.bfloat16)

    us = chain_us(calls, 24)
    report.add(f"{slice_name} rows4", "four projections + sums", {}, us, sum(one.num_bytes for one in matrices))
