"""A small trained tokenizer for tests of structured output, and short ways to look at masks."""

from __future__ import annotations

import functools

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from slipstream.text.grammar.bitmask import allowed_tokens, num_words
from slipstream.text.grammar.boundary import REASONING_END
from slipstream.text.grammar.matcher import GrammarFault
from slipstream.text.tokenizer import Tokenizer

CONTROL = ("]~!b[", "]~b]", "[e~[", "<mm:think>", REASONING_END, "<tool_call>", "</tool_call>")
END = "[e~["
PADDING = 37
"""Ids that the model has and the tokenizer does not."""

_CORPUS = (
    '{"name": "Ann", "age": 31, "tags": ["a", "b"], "ok": true, "none": null, "deep": {"x": [1, 2, 3]}}',
    "so the answer is clear </mm:think>{ and </mm:think>\n then it goes on </mm:think>[",
    "a>{ b>{ c>[ d>[ e>\n f>\n g>{ h>[ 1>{ 2>[ 3>\n 4>{ nk>{ ok>{ nk>\n ok>\n nk>[",
    "let us think about it for a while, then answer with a list of the names and the ages",
)


@functools.cache
def grammar_tokenizer() -> Tokenizer:
    """Return a byte-level tokenizer with merges of JSON, of prose, and across the end of the reasoning marker."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, max_token_length=5
    )
    backend.train_from_iterator(_CORPUS * 2, trainer)
    for text in CONTROL:
        backend.add_tokens([tokenizers.AddedToken(text, special=text == END, normalized=False)])
    return Tokenizer(backend, named={"eos_token": END})


def model_vocab_size() -> int:
    """Return the width of the model's logits."""
    return grammar_tokenizer().vocab_size + PADDING


def end_id() -> int:
    """Return the end token."""
    return grammar_tokenizer().eos_token_ids[0]


def marker_id() -> int:
    """Return the end of reasoning as one control token."""
    return grammar_tokenizer().control_ids[REASONING_END]


def spell(text: str) -> list[int]:
    """Return the tokenizer's own spelling of a text."""
    return grammar_tokenizer().encode_plain(text)


def letters(text: str) -> list[int]:
    """Return the ids of a text, one per byte."""
    return [byte_id(byte) for byte in text.encode()]


@functools.cache
def byte_id(byte: int) -> int:
    """Return the id of a single byte."""
    tokenizer = grammar_tokenizer()
    return next(id_ for id_ in range(tokenizer.vocab_size) if tokenizer.token_bytes(id_) == bytes([byte]))


def text_of(tokens: list[int]) -> str:
    """Return the text of tokens without the end token."""
    return grammar_tokenizer().decode(tokens)


def ladder(matcher, drafts=()) -> tuple[int, list[list[int]]]:
    """Return the number of allowed drafts, and the ids that every row allows."""
    vocab_size = model_vocab_size()
    out = np.full((len(drafts) + 1, num_words(vocab_size)), 0x5A5A5A5A, dtype=np.int32)
    num_allowed = matcher.fill_masks(drafts, out)
    return num_allowed, [allowed_tokens(row, vocab_size) for row in out]


def allowed_now(matcher) -> list[int]:
    """Return the ids that may come next."""
    return ladder(matcher)[1][0]


def accepts(grammar, tokens) -> bool:
    """Return whether a compiled grammar takes all tokens and may end there; what a mask allows must be taken."""
    matcher = grammar.start()
    for token in tokens:
        is_offered = token in allowed_now(matcher)
        try:
            matcher.accept([token])
        except GrammarFault:
            assert not is_offered
            return False
    return end_id() in allowed_now(matcher)
