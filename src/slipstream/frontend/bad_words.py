"""Words that an answer may not contain, as the token sequences that would write them."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.request import MAX_BAD_SEQUENCE_LEN, MAX_BAD_SEQUENCES


def bad_token_ids(words: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences of forbidden words: each at the start of a text, and after a space.

    Both spellings count, whatever their lengths: a word of three tokens at the start of a text is often one token after
    a space. Tokens, not texts, are forbidden: a word that the model spells with other tokens, or as a part of a longer
    token, is not recognised. A leading space in the word changes nothing.

    Args:
        words: not empty each.
        tokenizer: of the model.

    Raises:
        RequestError: a word has no token.
        UnsupportedFeature: a word has too many tokens, or there are too many words of several tokens.
    """
    sequences: dict[tuple[int, ...], None] = {}
    for word in words:
        if len(word) > MAX_BAD_SEQUENCE_LEN * tokenizer.max_token_bytes:
            raise UnsupportedFeature(
                f"bad_words holds a word of {len(word)} characters: at most {MAX_BAD_SEQUENCE_LEN} tokens can be "
                "looked for",
                param="bad_words",
            )
        bare = word.lstrip()
        first = tuple(tokenizer.encode(bare, add_special_tokens=False))
        if not first:
            raise RequestError(f"bad_words holds {word!r}, which has no token: leave it out", param="bad_words")
        spaced = tuple(tokenizer.encode(" " + bare, add_special_tokens=False))
        # A spelling that ends like the first one is forbidden by it already.
        forms = (first,) if spaced[-len(first) :] == first else (first, spaced)
        longest = max(map(len, forms))
        if longest > MAX_BAD_SEQUENCE_LEN:
            raise UnsupportedFeature(
                f"bad_words holds {word!r} of {longest} tokens: at most {MAX_BAD_SEQUENCE_LEN} can be looked for",
                param="bad_words",
            )
        sequences.update(dict.fromkeys(forms))
    num_long = sum(len(sequence) > 1 for sequence in sequences)
    if num_long > MAX_BAD_SEQUENCES:
        raise UnsupportedFeature(
            f"bad_words gives {num_long} sequences of more than one token: at most {MAX_BAD_SEQUENCES} can be looked "
            "for; words of one token are not limited",
            param="bad_words",
        )
    return tuple(sequences)
