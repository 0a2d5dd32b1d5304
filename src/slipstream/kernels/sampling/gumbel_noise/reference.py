"""Definition of the noise in plain tensor arithmetic."""

from __future__ import annotations

from torch import Tensor

_LOW_32 = 0xFFFFFFFF
# INVARIANT: multipliers stay below 2^31, so that the product with a 32-bit value fits in int64 without wrapping.
_MULTIPLIER_1 = 0x7FEB352D
_MULTIPLIER_2 = 0x31848BAB
_FIRST_KEY_SALT = 0x51ED270B
_SECOND_KEY_SALT = 0x2545F491


def _mix(word: Tensor) -> Tensor:
    """Return a bijective scramble of 32-bit words held in int64; a finaliser of the murmur family."""
    word = word ^ (word >> 16)
    word = (word * _MULTIPLIER_1) & _LOW_32
    word = word ^ (word >> 15)
    word = (word * _MULTIPLIER_2) & _LOW_32
    return word ^ (word >> 16)


def row_keys(seed: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    """Return two 32-bit keys per row; together they keep all of the seed and the position apart."""
    seed_low, seed_high, place = seed & _LOW_32, (seed >> 32) & _LOW_32, position & _LOW_32
    first = _mix(_mix(_mix(seed_low ^ _FIRST_KEY_SALT) ^ seed_high) ^ place)
    second = _mix(_mix(_mix(place ^ _SECOND_KEY_SALT) ^ seed_low) ^ seed_high)
    return first, second


def uniform_noise(seed: Tensor, position: Tensor, token_ids: Tensor) -> Tensor:
    """Return [num_tokens, vocab_size] float64 strictly inside (0, 1); the noise before it is shaped."""
    first, second = row_keys(seed, position)
    words = _mix((token_ids[None, :] + first[:, None]) & _LOW_32)
    words = _mix(words ^ second[:, None])
    # 23 bits and a half step: exact in float32 as well as in float64.
    return ((words >> 9).double() + 0.5) * 2.0**-23


def gumbel_noise(seed: Tensor, position: Tensor, token_ids: Tensor) -> Tensor:
    """See the contract."""
    return uniform_noise(seed, position, token_ids).log_().neg_().log_().neg_().float()
