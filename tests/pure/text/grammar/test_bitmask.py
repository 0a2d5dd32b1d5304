"""The packed mask is what it says, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.base.errors import EngineError
from slipstream.text.grammar.bitmask import (
    ALLOW_ALL,
    allowed_tokens,
    apply_mask,
    check_rows,
    is_allowed,
    num_words,
    pack_tokens,
    unpack_mask,
)
from slipstream.wire.ids import NO_TOKEN


@pytest.mark.parametrize(("vocab_size", "words"), [(0, 0), (1, 1), (31, 1), (32, 1), (33, 2), (200_064, 6252)])
def test_words_hold_thirty_two_tokens(vocab_size, words):
    assert num_words(vocab_size) == words


@given(st.integers(1, 130).flatmap(lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1)))))
def test_bit_i_of_word_j_is_token_32_j_plus_i(case):
    vocab_size, tokens = case
    mask = pack_tokens(tokens, vocab_size)
    assert mask.dtype == np.int32
    by_hand = [sum(1 << token % 32 for token in tokens if token // 32 == word) for word in range(len(mask))]
    assert [int(word) & 0xFFFFFFFF for word in mask] == by_hand
    assert allowed_tokens(mask, vocab_size) == sorted(tokens)
    assert [is_allowed(mask, token, vocab_size) for token in range(vocab_size)] == [
        token in tokens for token in range(vocab_size)
    ]


def test_ids_outside_the_vocabulary_are_never_allowed():
    mask = np.full(num_words(40), ALLOW_ALL, dtype=np.int32)
    assert is_allowed(mask, 39, 40)
    assert not any(is_allowed(mask, token, 40) for token in (NO_TOKEN, -33, 40, 63, 64, 10**9))


def test_a_mask_removes_tokens_from_logits():
    logits = np.arange(2 * 3 * 45, dtype=np.float32).reshape(2, 3, 45)
    rows = [[0, 31, 32, 44], [], list(range(45)), [5], [44], [31]]
    mask = np.stack([pack_tokens(row, 45) for row in rows]).reshape(2, 3, -1)
    masked = apply_mask(logits, mask)
    assert masked.dtype == np.float32
    for place, row in enumerate(rows):
        kept = np.flatnonzero(np.isfinite(masked.reshape(6, 45)[place]))
        assert kept.tolist() == row
        assert (masked.reshape(6, 45)[place][row] == logits.reshape(6, 45)[place][row]).all()


def test_bits_past_the_vocabulary_do_not_show():
    mask = np.full((1, num_words(33)), ALLOW_ALL, dtype=np.int32)
    assert unpack_mask(mask, 33).shape == (1, 33)
    assert unpack_mask(mask, 33).all()


def test_rows_that_cannot_be_filled_are_refused():
    check_rows(np.zeros((3, 4), dtype=np.int32), 3, 4)
    check_rows(np.zeros((6, 8), dtype=np.int32)[::2, :4], 3, 4)
    read_only = np.zeros((3, 4), dtype=np.int32)
    read_only.flags.writeable = False
    wrong = [
        np.zeros((3, 4), dtype=np.int64),
        np.zeros((2, 4), dtype=np.int32),
        np.zeros((3, 5), dtype=np.int32),
        np.zeros((3, 8), dtype=np.int32)[:, ::2],
        np.zeros((4, 3), dtype=np.int32).T,
        read_only,
    ]
    for out in wrong:
        with pytest.raises(EngineError, match=r"writeable int32 \[3, 4\]"):
            check_rows(out, 3, 4)
