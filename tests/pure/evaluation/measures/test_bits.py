"""Bits per byte: all bits over the bytes of the words, the same for engine and n-gram models."""

from __future__ import annotations

import math

import pytest

from slipstream.evaluation.measures.bits import choose_texts, measure_bits, train_ngrams
from slipstream.evaluation.suite import Dialogue, Text
from support.evaluation_world import TEXT, FakeProgress, FakeSubject, tiny_suite, user


def choose(suite=None, *, is_native=True, per_domain=2, max_tokens=64):
    return choose_texts(TEXT, suite or tiny_suite(), is_native=is_native, per_domain=per_domain, max_tokens=max_tokens)


def test_held_out_texts_are_taken_domain_by_domain():
    assert [text.domain for text in choose()] == ["documents", "documents", "chat"]
    assert [text.domain for text in choose(per_domain=1)] == ["documents", "chat"]
    assert [text.domain for text in choose(is_native=False)] == ["documents", "documents"]
    short = choose(max_tokens=5)
    assert {len(text.token_ids) for text in short} <= set(range(2, 6))
    assert choose(tiny_suite(texts=(Text(split="test", domain="x", text=""),), dialogues=())) == ()


def test_bits_per_byte_are_those_of_the_log_probabilities():
    texts, progress = choose(is_native=False), FakeProgress()
    row = next(measure_bits(FakeSubject(logprob=-2.0), texts, None, TEXT.tokenizer, progress.advance))
    num_scored = sum(len(text.token_ids) - 1 for text in texts)
    num_bytes = sum(text.num_bytes for text in texts)
    assert row.num_tokens == num_scored
    assert row.num_bytes == num_bytes == len("the lazy dog jumps over the quick brown fox") + len("hello world")
    assert row.bits_per_byte.value == pytest.approx(2.0 / math.log(2) * num_scored / num_bytes)
    assert row.ngram_bits_per_byte is None
    assert progress.done == sum(len(text.token_ids) for text in texts)


def test_the_better_n_gram_model_is_the_rival():
    ngrams = train_ngrams(TEXT, tiny_suite(), is_native=True, has_bytes=True)
    rows = list(measure_bits(FakeSubject(), choose(), ngrams, TEXT.tokenizer, lambda count: None))
    assert [row.domain for row in rows] == ["documents", "chat"]
    for row in rows:
        assert row.token_ngram is not None
        assert row.byte_ngram is not None
        assert row.ngram_bits_per_byte is not None
        assert row.ngram_bits_per_byte.value == min(row.token_ngram, row.byte_ngram)
    assert train_ngrams(TEXT, tiny_suite(), is_native=False, has_bytes=False).over_bytes is None
    assert train_ngrams(TEXT, tiny_suite(texts=(), dialogues=()), is_native=True, has_bytes=True) is None


def test_a_text_that_was_trained_on_costs_an_n_gram_model_little():
    same = (user("the dog"), {"role": "assistant", "content": "the dog sleeps"})
    other = (user("zzz qqq"), {"role": "assistant", "content": "xyxyx"})
    suite = tiny_suite(
        texts=(),
        dialogues=(
            Dialogue(split="train", domain="a", messages=same),
            Dialogue(split="test", domain="same", messages=same),
            Dialogue(split="test", domain="other", messages=other),
        ),
    )
    ngrams = train_ngrams(TEXT, suite, is_native=True, has_bytes=False)
    rows = measure_bits(FakeSubject(), choose(suite), ngrams, TEXT.tokenizer, lambda count: None)
    costs = {row.domain: row.token_ngram for row in rows}
    assert costs["same"] < costs["other"] / 3
