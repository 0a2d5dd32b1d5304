"""How the inner axis of a product is split. By shape alone: the batch must not change the order of a sum."""

from __future__ import annotations

from slipstream.kernels.linear.matmul_mxfp8.layout import CHUNK, UNIT

MAX_UNITS = 8
"""More do not fit into the registers of a warp group beside the rows."""
_TARGET_BLOCKS = 256
"""Thread blocks that fill a Hopper GPU while their weights wait in registers: two a processor, measured."""
_WIDE_REGISTERS = 168
"""Registers of a thread with two chunks of weights: three thread blocks then wait side by side, measured."""


def units_per_split(out_units: int, in_units: int) -> int:
    """Return how many units of 64 inner columns one partial sum covers: whole chunks, at most MAX_UNITS.

    Args:
        out_units: output rows over 64, rounded up.
        in_units: inner columns over 64.
    """
    units = CHUNK
    while units < MAX_UNITS and units < in_units and out_units * -(-in_units // (2 * units)) >= _TARGET_BLOCKS:
        units *= 2
    return units


def max_registers(units: int) -> int | None:
    """Return the registers that a thread may use, or None for what the compiler takes.

    Args:
        units: inner units of a split.
    """
    return _WIDE_REGISTERS if units > CHUNK else None


def num_splits(out_features: int, in_features: int) -> int:
    """Return the partial sums that a product hands over."""
    in_units = in_features // UNIT
    return -(-in_units // units_per_split(-(-out_features // UNIT), in_units))
