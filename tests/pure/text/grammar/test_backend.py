"""What the library is told of a tokenizer, and what it says back."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers
from llguidance import LLMatcher
from tokenizers import decoders, models, pre_tokenizers

from slipstream.base.errors import CheckpointError
from slipstream.text.grammar.backend import build_tokenizer, explain_error, read_vocabulary, start_matcher
from slipstream.text.grammar.bitmask import allowed_tokens
from slipstream.text.tokenizer import Tokenizer
from support.grammar_world import CONTROL, END, end_id, grammar_tokenizer, letters, model_vocab_size, spell


@pytest.fixture(scope="module")
def vocabulary():
    return read_vocabulary(grammar_tokenizer(), model_vocab_size())


def open_regex(vocabulary, pattern):
    library = build_tokenizer(vocabulary, grammar_tokenizer().encode_plain)
    return start_matcher(library, LLMatcher.grammar_from_regex(pattern))


def mask_of(matcher):
    return allowed_tokens(np.frombuffer(matcher.compute_bitmask(), dtype=np.int32), model_vocab_size())


def test_the_vocabulary_is_padded_to_the_model(vocabulary):
    assert len(vocabulary.tokens) == model_vocab_size()
    assert vocabulary.tokens[-1] == b""
    assert vocabulary.tokens[: grammar_tokenizer().vocab_size] == tuple(
        map(grammar_tokenizer().token_bytes, range(grammar_tokenizer().vocab_size))
    )
    assert set(vocabulary.control_ids) == {grammar_tokenizer().control_ids[text] for text in CONTROL}
    assert vocabulary.eos_ids == (end_id(),)
    assert len(read_vocabulary(grammar_tokenizer()).tokens) == grammar_tokenizer().vocab_size


def test_the_mask_has_the_models_width_and_no_padding(vocabulary):
    matcher = open_regex(vocabulary, "(?s:.)*")
    assert len(matcher.compute_bitmask()) == (model_vocab_size() + 31) // 32 * 4
    tokenizer = grammar_tokenizer()
    allowed = mask_of(matcher)
    assert set(allowed) <= set(range(tokenizer.vocab_size))
    assert not (set(tokenizer.control_ids.values()) - {end_id()}) & set(allowed)
    assert set(spell("so the answer")) <= set(allowed)


def test_every_end_token_ends(vocabulary):
    backend = tokenizers.Tokenizer.from_str(grammar_tokenizer()._backend.to_str())
    ids = (end_id(), backend.token_to_id("]~b]"))
    both = Tokenizer(backend, eos_ids=ids)
    matcher = open_regex(read_vocabulary(both, model_vocab_size()), "a?")
    assert set(mask_of(matcher)) == {*ids, *letters("a")}
    assert set(mask_of(open_regex(vocabulary, "a?"))) == {end_id(), *letters("a")}


def test_a_model_smaller_than_its_tokenizer_is_refused():
    with pytest.raises(CheckpointError, match="take both from one checkpoint"):
        read_vocabulary(grammar_tokenizer(), grammar_tokenizer().vocab_size - 1)
    outside = Tokenizer(tokenizers.Tokenizer.from_str(grammar_tokenizer()._backend.to_str()), eos_ids=(4000,))
    with pytest.raises(CheckpointError, match="end token 4000"):
        read_vocabulary(outside)


def test_a_tokenizer_that_changes_text_is_refused():
    backend = tokenizers.Tokenizer(models.BPE({c: i for i, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}, []))
    backend.decoder = decoders.ByteLevel()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.add_special_tokens([END])
    with pytest.raises(CheckpointError, match="does not keep the text"):
        read_vocabulary(Tokenizer(backend, named={"eos_token": END}))


def test_forced_text_is_spelled_as_the_tokenizer_spells_it(vocabulary):
    matcher = open_regex(vocabulary, "so the answer is then deep")
    assert list(matcher.compute_ff_tokens()) == spell("so the answer is then deep")


def test_errors_are_asked_for_because_they_do_not_raise(vocabulary):
    assert explain_error(open_regex(vocabulary, "a")) is None
    error = explain_error(open_regex(vocabulary, "a("))
    assert error is not None
    assert "unclosed group" in error
    assert "<state>" not in error
    long = explain_error(open_regex(vocabulary, "(" * 3000))
    assert long is not None
    assert len(long) < 600
