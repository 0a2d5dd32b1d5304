"""The packed set of allowed tokens: bit i % 32 of int32 word i // 32 says whether token i is allowed.

Not here: who decides (matcher) and the device's copy of this arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from slipstream.base.errors import EngineError

Mask = NDArray[np.int32]  # [num_words] or [query_len, num_words]

ALLOW_ALL = np.int32(-1)
"""A word whose 32 tokens are all allowed; also the value for requests without a grammar."""


def num_words(vocab_size: int) -> int:
    """Return how many words hold the bits of `vocab_size` tokens."""
    return (vocab_size + 31) // 32


def pack_tokens(token_ids: Iterable[int], vocab_size: int) -> Mask:
    """Return the mask that allows exactly these tokens.

    Args:
        token_ids: each from 0 to vocab_size - 1.
        vocab_size: number of tokens.
    """
    bits = np.zeros(num_words(vocab_size) * 32, dtype=np.uint8)
    bits[list(token_ids)] = 1
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32)


def unpack_mask(mask: Mask, vocab_size: int) -> NDArray[np.bool_]:
    """Return one flag per token.

    Args:
        mask: [..., num_words] int32.
        vocab_size: number of tokens; bits past it are dropped.
    """
    octets = np.ascontiguousarray(mask, dtype="<i4").view(np.uint8)
    return np.unpackbits(octets, axis=-1, bitorder="little")[..., :vocab_size].astype(bool)


def allowed_tokens(mask: Mask, vocab_size: int) -> list[int]:
    """Return the ids that one row allows, ascending."""
    return np.flatnonzero(unpack_mask(mask, vocab_size)).tolist()


def is_allowed(mask: Mask, token_id: int, vocab_size: int) -> bool:
    """Return whether one row allows a token; ids outside the vocabulary, NO_TOKEN among them, never are."""
    return 0 <= token_id < vocab_size and bool((int(mask[token_id >> 5]) >> (token_id & 31)) & 1)


def apply_mask(logits: NDArray[np.float32], mask: Mask) -> NDArray[np.float32]:
    """Return the logits with every token that is not allowed at -inf.

    Args:
        logits: [..., vocab_size] float32.
        mask: [..., num_words] int32; the same leading axes.
    """
    return np.where(unpack_mask(mask, logits.shape[-1]), logits, np.float32(-np.inf))


def check_rows(out: Mask, num_rows: int, words: int) -> None:
    """Check that `out` can be filled in place.

    Raises:
        EngineError: another dtype or shape, a read-only array, or rows that are not contiguous.
    """
    is_fit = out.dtype == np.int32 and out.shape == (num_rows, words)
    if not (is_fit and out.flags.writeable and out.strides[1] == out.itemsize):
        raise EngineError(
            f"mask rows are {out.dtype} {out.shape}, strides {out.strides}: give writeable int32 "
            f"[{num_rows}, {words}] with contiguous rows"
        )
