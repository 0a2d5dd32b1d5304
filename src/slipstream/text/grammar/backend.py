"""The library's tokenizer and matcher, built from plain values. Shared by the engine's side and the guard process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from slipstream.base.errors import CheckpointError
from slipstream.text.tokenizer import Tokenizer

# A mask is made while every other request waits: an ambiguous grammar, whose parser rows grow with the text, may not
# take a second for one. Sound grammars (large schemas, thousands of choices) stay far below.
_MAX_PARSER_ITEMS = 5_000
_LIMITS = LLParserLimits(max_lexer_states=32_768, step_max_items=_MAX_PARSER_ITEMS, verbose_errors=False)
_MAX_ERROR_CHARS = 500
_PROBE = '{"a": [1, "b"]}'


class Vocabulary(msgspec.Struct, frozen=True):
    """What a grammar has to know of a tokenizer.

    Args:
        tokens: bytes of every id of the model; empty where the tokenizer has no entry, which is never allowed.
        control_ids: ids that stand for no text: control tokens and end tokens.
        eos_ids: ids that end the answer, at least one.
    """

    tokens: tuple[bytes, ...]
    control_ids: tuple[int, ...]
    eos_ids: tuple[int, ...]


def read_vocabulary(tokenizer: Tokenizer, vocab_size: int | None = None, eos_ids: tuple[int, ...] = ()) -> Vocabulary:
    """Return the tokenizer's vocabulary, padded to the model's.

    Args:
        tokenizer: the tokenizer.
        vocab_size: width of the model's logits; None means the tokenizer's own.
        eos_ids: ids that end an answer; empty means the tokenizer's own.

    Raises:
        CheckpointError: the model has fewer tokens than the tokenizer, or text does not survive the tokenizer.
    """
    size = tokenizer.vocab_size if vocab_size is None else vocab_size
    eos_ids = eos_ids or tokenizer.eos_token_ids
    end = max(eos_ids)
    if size < tokenizer.vocab_size or end >= size:
        raise CheckpointError(
            f"the model has {size} tokens, the tokenizer {tokenizer.vocab_size} and end token {end}: take both from "
            "one checkpoint"
        )
    spelled = tokenizer.encode_plain(_PROBE)
    if b"".join(map(tokenizer.token_bytes, spelled)) != _PROBE.encode():
        raise CheckpointError(
            f"the tokenizer does not keep the text {_PROBE!r} as it is (a normalizer or an added space): structured "
            "output needs one that does"
        )
    return Vocabulary(
        tokens=tuple(tokenizer.token_bytes(id_) for id_ in range(size)),
        control_ids=tuple(sorted({*tokenizer.control_ids.values(), *eos_ids})),
        eos_ids=eos_ids,
    )


class _Source:
    """The attributes that the library reads."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]]) -> None:
        self.tokens = list(vocabulary.tokens)
        self.special_token_ids = list(vocabulary.control_ids)
        self.eos_token_id = vocabulary.eos_ids[0]
        self._encode = encode

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError("text is a string")
        return list(self._encode(text))


def build_tokenizer(vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]]) -> LLTokenizer:
    """Return the library's tokenizer.

    Args:
        vocabulary: tokens by id.
        encode: plain text to ids; how forced text is spelled.
    """
    # The end tokens are passed explicitly: left alone, the library guesses, and may take token 0.
    return LLTokenizer(TokenizerWrapper(_Source(vocabulary, encode)), eos_token=list(vocabulary.eos_ids))


def start_matcher(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """Return a matcher before its first token; whether it is usable, `explain_error` says. Releases the GIL."""
    return LLMatcher(tokenizer, grammar, log_level=0, limits=_LIMITS)


def explain_error(matcher: LLMatcher) -> str | None:
    """Return why a matcher is unusable, or None. The library never raises for this, so it has to be asked."""
    if not matcher.is_error():
        return None
    text = matcher.get_error().replace("<non-verbose/>", "").strip() or "unknown error"
    return text if len(text) <= _MAX_ERROR_CHARS else text[:_MAX_ERROR_CHARS] + " …"
