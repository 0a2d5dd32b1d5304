"""What a piece of noise is for. Noise is keyed by (seed, position, purpose); different purposes are independent.

A purpose is folded into the seed, so every operation that takes a seed takes any purpose. The target's own draw is
purpose 0, whose seed is the request's: drafts that are coupled with it use the same.
"""

from __future__ import annotations

from enum import IntEnum

from torch import Tensor


class Purpose(IntEnum):
    """The draws that a position can need."""

    TARGET = 0
    """The target's own draw, and a draft that is coupled with it."""
    DRAFT = 1
    """A draft that rejection will judge."""
    ACCEPT = 2
    """The uniform that accepts or rejects a draft."""
    RESIDUAL = 3
    """The token that replaces a rejected draft."""


# Arbitrary odd 64-bit numbers, far apart in Hamming distance; the hash that follows does the mixing.
_SALTS = {
    Purpose.TARGET: 0,
    Purpose.DRAFT: 0x3A5F1C6B9D0E7247,
    Purpose.ACCEPT: 0x64C8D92E17B3F05B,
    Purpose.RESIDUAL: 0x591E86F3A24D7C0D,
}


def salt_of(purpose: Purpose) -> int:
    """Return what the seed of a purpose differs by, for a kernel that applies it itself."""
    return _SALTS[purpose]


def seed_for(seed: Tensor, purpose: Purpose) -> Tensor:
    """Return the seed of a purpose.

    Args:
        seed: [...] int64; the request's seed.
        purpose: what the noise is for.

    Returns:
        [...] int64; the seed itself for TARGET.
    """
    return seed ^ _SALTS[purpose]
