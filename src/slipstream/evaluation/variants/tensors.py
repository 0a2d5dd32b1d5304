"""Changes of stored tensors that are exact in every stored format, since they touch payload or scales alone.

Not here: which tensors an ablation changes (features).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from slipstream.base.errors import UnsupportedFeature

Tensors = dict[str, Tensor]
_PLAIN = (torch.bfloat16, torch.float16, torch.float32)
_MXFP8_SCALE = "_scale_inv"


def find(tensors: Tensors, pattern: str) -> Iterator[str]:
    """Yield the names that end as the pattern says, in order."""
    expression = re.compile(rf"(?:.*[.])?{pattern}")
    yield from sorted(name for name in tensors if expression.fullmatch(name))


def zero(tensors: Tensors, name: str) -> None:
    """Set a tensor to zero; all-zero bytes are zero in every stored format."""
    tensors[name] = torch.zeros_like(_bytes(tensors[name])).view(tensors[name].dtype).reshape(tensors[name].shape)


def shift(tensors: Tensors, name: str, addend: float) -> None:
    """Add a number to a plain tensor, which becomes float32."""
    _require_plain(tensors, name)
    tensors[name] = tensors[name].float() + addend


def fill(tensors: Tensors, name: str, value: float) -> None:
    """Set every entry of a plain tensor, which becomes float32."""
    _require_plain(tensors, name)
    tensors[name] = torch.full(tensors[name].shape, value, dtype=torch.float32)


def scale_by_power_of_two(tensors: Tensors, name: str, exponent: int) -> None:
    """Multiply a tensor by 2 to the exponent, through its scales if it is stored as MXFP8.

    Raises:
        UnsupportedFeature: another packed format.
    """
    scales = f"{name}{_MXFP8_SCALE}"
    if tensors[name].dtype in _PLAIN:
        tensors[name] = tensors[name].float() * 2.0**exponent
    elif scales in tensors:
        codes = _bytes(tensors[scales]).int() + exponent
        stored = codes.clamp(0, 254).to(torch.uint8)
        tensors[scales] = stored.view(tensors[scales].dtype).reshape(tensors[scales].shape)
    else:
        _require_plain(tensors, name)


def shuffle(tensors: Tensors, name: str, generator: torch.Generator) -> None:
    """Put the stored elements of a tensor in random order: as large as before, and without what was learned."""
    flat = tensors[name].contiguous().flatten()
    size = flat.element_size()
    rows = _bytes(flat).reshape(-1, size)
    mixed = rows[torch.randperm(rows.shape[0], generator=generator)].contiguous()
    tensors[name] = mixed.flatten().view(tensors[name].dtype).reshape(tensors[name].shape)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


def _require_plain(tensors: Tensors, name: str) -> None:
    if tensors[name].dtype not in _PLAIN:
        raise UnsupportedFeature(
            f"the tensor {name} is stored as {tensors[name].dtype}, in which this change cannot be written; "
            "allowed: bfloat16, float16, float32. Evaluate the checkpoint's bfloat16 release"
        )
