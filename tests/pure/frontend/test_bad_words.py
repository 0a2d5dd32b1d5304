"""Words become the token sequences that write them; what cannot be looked for is refused with the reason."""

from __future__ import annotations

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.demo import demo_path
from slipstream.frontend.bad_words import bad_token_ids
from slipstream.frontend.processor import TextParts
from slipstream.wire.request import MAX_BAD_SEQUENCE_LEN, MAX_BAD_SEQUENCES
from support.tiny_text import tiny_folder

TOKENIZER = TextParts.load(tiny_folder()).tokenizer


def encode(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text, add_special_tokens=False))


def test_a_word_is_forbidden_at_the_start_and_after_a_space():
    spaced = next(word for word in ("the", "fox", "dog", "and") if len(encode(" " + word)) == len(encode(word)))
    assert bad_token_ids([spaced], TOKENIZER) == (encode(spaced), encode(" " + spaced))
    assert bad_token_ids([" " + spaced, spaced], TOKENIZER) == bad_token_ids([spaced], TOKENIZER)
    longer = next(word for word in ("A", "Q", "é") if len(encode(" " + word)) > len(encode(word)))
    assert bad_token_ids([longer], TOKENIZER) == (encode(longer),)


def test_both_spellings_count_whatever_their_lengths():
    """A word of several tokens at the start of a text is often one token after a space."""
    tokenizer = TextParts.load(demo_path()).tokenizer
    bare, spaced = (tuple(tokenizer.encode(text, add_special_tokens=False)) for text in ("beauty", " beauty"))
    assert len(bare) > len(spaced) == 1
    assert bad_token_ids(["beauty"], tokenizer) == bad_token_ids([" beauty"], tokenizer) == (bare, spaced)


def test_nothing_asked_is_nothing_forbidden():
    assert bad_token_ids([], TOKENIZER) == ()


def test_a_word_without_tokens_is_refused():
    with pytest.raises(RequestError, match="no token"):
        bad_token_ids(["  "], TOKENIZER)


def test_a_word_that_cannot_fit_is_refused_before_it_is_tokenised():
    with pytest.raises(UnsupportedFeature, match=f"{10**8} characters") as caught:
        bad_token_ids(["Q" * 10**8], TOKENIZER)
    assert caught.value.param == "bad_words"


def test_the_limits_are_exact():
    longest = "Q" * MAX_BAD_SEQUENCE_LEN
    assert len(encode(longest)) == MAX_BAD_SEQUENCE_LEN
    assert bad_token_ids([longest], TOKENIZER)
    with pytest.raises(UnsupportedFeature, match=f"at most {MAX_BAD_SEQUENCE_LEN}") as caught:
        bad_token_ids([longest + "Q"], TOKENIZER)
    assert caught.value.param == "bad_words"
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    many = [a + b for a in letters for b in letters if len(encode(a + b)) == 2 and len(encode(f" {a}{b}")) == 3]
    assert len(bad_token_ids([*many[:MAX_BAD_SEQUENCES], *letters], TOKENIZER)) > MAX_BAD_SEQUENCES
    with pytest.raises(UnsupportedFeature, match=f"at most {MAX_BAD_SEQUENCES}"):
        bad_token_ids(many[: MAX_BAD_SEQUENCES + 1], TOKENIZER)
