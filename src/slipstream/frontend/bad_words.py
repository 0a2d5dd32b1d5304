"""Words that an answer may not contain, as the token sequences that would write them."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.request import MAX_BAD_SEQUENCE_LEN, MAX_BAD_SEQUENCES


def bad_token_ids(words: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences of forbidden words: each at the start of a text, and after a space.

    As in vLLM, the second form counts when it is as long as the first and begins with another token. A word that the
    model spells in another way is not recognised; tokens, not texts, are forbidden.

    Args:
        words: not empty each.
        tokenizer: of the model.

    Raises:
        RequestError: a word has no token.
        UnsupportedFeature: a word has too many tokens, or there are too many words of several tokens.
    """
    sequences: dict[tuple[int, ...], None] = {}
    for word in words:
        bare = word.lstrip()
        first = tuple(tokenizer.encode(bare, add_special_tokens=False))
        if not first:
            raise RequestError(f"bad_words holds {word!r}, which has no token: leave it out", param="bad_words")
        spaced = tuple(tokenizer.encode(" " + bare, add_special_tokens=False))
        forms = [first]
        if len(spaced) == len(first) and spaced[0] != first[0]:
            forms.append(spaced)
        if len(first) > MAX_BAD_SEQUENCE_LEN:
            raise UnsupportedFeature(
                f"bad_words holds {word!r} of {len(first)} tokens: at most {MAX_BAD_SEQUENCE_LEN} can be looked for",
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
