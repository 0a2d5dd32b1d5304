"""However a stream is cut into runs, its pieces join to the decoding of the whole."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.text.detokenizer import IncrementalDetokenizer
from slipstream.text.tokenizer import Tokenizer
from support.profiles import relaxed
from support.tiny_text import tiny_folder

TOKENIZER = Tokenizer.load(tiny_folder())
FIRST_BYTE = {TOKENIZER.token_bytes(id_): id_ for id_ in range(TOKENIZER.vocab_size - 1, -1, -1)}

valid = st.text(max_size=20).map(TOKENIZER.encode)
single_bytes = st.binary(max_size=12).map(lambda raw: [FIRST_BYTE[bytes([byte])] for byte in raw])
any_ids = st.lists(st.integers(0, TOKENIZER.vocab_size + 3), max_size=12)
streams = st.lists(st.one_of(valid, single_bytes, any_ids), max_size=5).map(lambda runs: list(itertools.chain(*runs)))


def cut(ids, cuts):
    places = sorted({min(place, len(ids)) for place in cuts})
    return [ids[a:b] for a, b in zip([0, *places], [*places, len(ids)], strict=True)]


@relaxed
@given(streams, st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_any_chunking_gives_the_decoding_of_the_whole(ids, cuts, skip):
    detokenizer = IncrementalDetokenizer(TOKENIZER, skip_special_tokens=skip)
    pieces = [piece for run in cut(ids, cuts) for piece in detokenizer.feed(run)]
    assert len(pieces) == len(ids)
    assert "".join(pieces) + detokenizer.flush() == TOKENIZER.decode(ids, skip_special_tokens=skip)


@relaxed
@given(streams, st.lists(st.integers(0, 60), max_size=8))
def test_the_piece_of_a_token_does_not_depend_on_the_runs(ids, cuts):
    whole = IncrementalDetokenizer(TOKENIZER).feed(ids)
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    assert [piece for run in cut(ids, cuts) for piece in detokenizer.feed(run)] == whole


def test_a_character_split_over_tokens_appears_with_its_last_byte():
    ids = [FIRST_BYTE[bytes([byte])] for byte in "🙂".encode()]
    assert IncrementalDetokenizer(TOKENIZER).feed(ids) == ["", "", "", "🙂"]


@pytest.mark.parametrize("byte", [0x80, 0xFF, 0xC3])
def test_invalid_bytes_are_never_withheld_without_bound(byte):
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    num_shown = 0
    for num_fed in range(1, 200):
        num_shown += len("".join(detokenizer.feed([FIRST_BYTE[bytes([byte])]])))
        assert num_fed - num_shown <= 3


def test_flush_shows_an_unfinished_character_and_starts_afresh():
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    assert detokenizer.feed([FIRST_BYTE[b"\xe4"], FIRST_BYTE[b"\xb8"]]) == ["", ""]
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""
    assert detokenizer.feed(TOKENIZER.encode("a")) == ["a"]


def test_ids_outside_the_vocabulary_have_no_text():
    assert IncrementalDetokenizer(TOKENIZER).feed([TOKENIZER.vocab_size, 10**9]) == ["", ""]


def test_work_is_linear_in_the_tokens():
    """Every token's bytes are looked up once, however long the text before it is."""
    looked_up = []

    class Counting:
        special_ids = TOKENIZER.special_ids

        def token_bytes(self, token_id):
            looked_up.append(token_id)
            return TOKENIZER.token_bytes(token_id)

    detokenizer = IncrementalDetokenizer(Counting())
    ids = TOKENIZER.encode("the quick brown fox " * 200)
    for id_ in ids:
        detokenizer.feed([id_])
    assert looked_up == ids
