"""Named cases of `matmul_mxfp8`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.case import EXACT, Case, Tolerance
from slipstream.kernels.linear.matmul_mxfp8.layout import GROUP, pack

SINGLE = Tolerance(4e-3, 2e-5, "float32 sums of up to 512 products whose absolute values add up to about 3,000")

CASES = (
    Case("one_row", "rows of a tile that holds one are read", 1, torch.bfloat16, SINGLE, {"shape": (1, 64, 256)}),
    Case(
        "several_splits",
        "a split starts at another split's columns",
        2,
        torch.bfloat16,
        SINGLE,
        {"shape": (5, 128, 1536)},
    ),
    Case("many_rows", "rows after the first tile are lost", 3, torch.bfloat16, SINGLE, {"shape": (35, 64, 256)}),
    Case("odd_outputs", "rows that fill a unit up are written", 4, torch.bfloat16, SINGLE, {"shape": (3, 72, 128)}),
    Case("tail", "inner columns behind the last unit count", 5, torch.bfloat16, SINGLE, {"shape": (4, 64, 384)}),
    Case("integers", "sums of integers are exact in any order", 6, torch.bfloat16, EXACT, {"shape": (4, 128, 512)}),
    Case(
        "every_code",
        "small codes, or the sign of a code, are lost",
        7,
        torch.bfloat16,
        EXACT,
        {"shape": (2, 64, 64)},
    ),
    Case("uneven_scales", "a scale is taken for its neighbour's", 8, torch.bfloat16, SINGLE, {"shape": (4, 64, 512)}),
)


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract."""
    generator = case.generator()
    num_tokens, out_features, in_features = case.sequence("shape")
    x = torch.randn(num_tokens, in_features, generator=generator)
    codes = (torch.randn(out_features, in_features, generator=generator) * 4).to(torch.float8_e4m3fn)
    exponents = torch.zeros(out_features, in_features // GROUP, dtype=torch.int64)
    if case.name == "integers":
        x = torch.randint(-8, 9, x.shape, generator=generator)
        codes = torch.randint(-15, 16, codes.shape, generator=generator).float().to(torch.float8_e4m3fn)
        exponents = torch.randint(0, 3, exponents.shape, generator=generator)
    elif case.name == "every_code":
        # Each output row picks codes out: x is 1 at one place and 0 elsewhere.
        x = torch.zeros(x.shape)
        x[0, 5], x[1, 37] = 1.0, 1.0
        numbers = torch.arange(codes.numel(), dtype=torch.int64).view(in_features, out_features).t() % 254
        codes = (numbers + (numbers >= 127).long()).to(torch.uint8).contiguous().view(torch.float8_e4m3fn)
    elif case.name == "uneven_scales":
        exponents = torch.randint(-4, 1, exponents.shape, generator=generator)
    words, scale_words = pack(codes, (exponents + 127).to(torch.uint8))
    return {"x": x.to(case.dtype), "words": words, "scale_words": scale_words, "out_features": out_features}
