"""Plain oracles of the quantised formats, number by number on Python floats, and checkpoints made by hand with them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def e4m3_value(byte: int) -> float:
    """Return what one byte of e4m3 (without infinities) stands for."""
    sign = -1.0 if byte & 0x80 else 1.0
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * math.ldexp(mantissa, -9)
    return sign * math.ldexp(8 + mantissa, exponent - 10)


def e2m1_value(nibble: int) -> float:
    """Return what four bits stand for."""
    return -E2M1[nibble & 7] if nibble & 8 else E2M1[nibble]


def mxfp8_oracle(values: Tensor, codes: Tensor) -> Tensor:
    """Return [out, in] float32: element times 2^(code - 127) of its 32 columns."""
    raw, scales = values.view(torch.uint8).tolist(), codes.view(torch.uint8).tolist()
    rows = [
        [math.ldexp(e4m3_value(byte), scales[row][column // 32] - 127) for column, byte in enumerate(line)]
        for row, line in enumerate(raw)
    ]
    return torch.tensor(rows, dtype=torch.float64).float()


def nvfp4_oracle(packed: Tensor, scales: Tensor, multiplier: float) -> Tensor:
    """Return [out, in] float32: element times its 16 columns' scale times the global multiplier; low nibble first."""
    blocks = scales.view(torch.uint8).tolist()
    rows = []
    for row, line in enumerate(packed.tolist()):
        nibbles = [nibble for byte in line for nibble in (byte & 15, byte >> 4)]
        rows.append(
            [e2m1_value(n) * e4m3_value(blocks[row][column // 16]) * multiplier for column, n in enumerate(nibbles)]
        )
    return torch.tensor(rows, dtype=torch.float64).float()


def nearest_even(value: float, grid: Sequence[float]) -> float:
    """Return the element of an ascending grid that is nearest; of two, the one at an even place; beyond it, its end."""
    place = min(range(len(grid)), key=lambda i: (abs(grid[i] - abs(value)), i % 2))
    return math.copysign(grid[place], value)


def dequantised_copy(folder: Path, target: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write a plain checkpoint with the values that a quantised one of one file stands for, by the oracles alone."""
    stored = load_file(folder / "model.safetensors")
    plain: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name.endswith(("_scale", "_scale_2", "_scale_inv", "_global_scale", ".input_scale")):
            continue
        logical = name.removesuffix("_packed")
        if f"{name}_scale_inv" in stored:
            plain[name] = mxfp8_oracle(tensor, stored[f"{name}_scale_inv"]).to(dtype)
        elif f"{name}_scale_2" in stored:
            plain[name] = nvfp4_oracle(tensor, stored[f"{name}_scale"], float(stored[f"{name}_scale_2"])).to(dtype)
        elif logical != name:
            factor = 1 / stored[f"{logical}_global_scale"]
            plain[logical] = nvfp4_oracle(tensor, stored[f"{logical}_scale"], float(factor)).to(dtype)
        else:
            plain[name] = tensor
    target.mkdir(parents=True)
    save_file(plain, target / "model.safetensors")
    for item in folder.iterdir():
        if item.suffix in (".json", ".jinja") and item.name != "hf_quant_config.json":
            (target / item.name).write_bytes(item.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (target / "config.json").write_text(json.dumps(config))
    return target
