"""Bits per byte of held-out texts, from the engine's prompt log-probabilities, beside n-gram models.

All bits of a text count, its markers' too; bytes are those of the words alone. The first token of a text is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from slipstream.evaluation.estimates import Ratio, estimate_ratio
from slipstream.evaluation.findings import DomainBits
from slipstream.evaluation.measures.work import Meter
from slipstream.evaluation.ngram import NgramModel
from slipstream.evaluation.subject import Subject
from slipstream.evaluation.suite import Dialogue, Split, Suite, Text
from slipstream.evaluation.words import byte_symbols, count_bytes, encode_document, num_byte_symbols
from slipstream.frontend.processor import TextParts
from slipstream.text.tokenizer import Tokenizer

NGRAM_ORDER = 5
_MIN_TOKENS = 2


class ScoredText(msgspec.Struct, frozen=True, kw_only=True):
    """A text as token ids, and the bytes of what is scored."""

    domain: str
    token_ids: tuple[int, ...]
    num_bytes: int


class Ngrams(msgspec.Struct, frozen=True, kw_only=True):
    """The models to beat: over tokens, and over bytes if that one was trained."""

    over_tokens: NgramModel
    over_bytes: NgramModel | None = None


def choose_texts(
    text: TextParts, suite: Suite, *, is_native: bool, per_domain: int, max_tokens: int
) -> tuple[ScoredText, ...]:
    """Return the first held-out texts of each domain, cut to `max_tokens`.

    Args:
        text: tokenizer and template.
        suite: the texts.
        is_native: conversations can be rendered; without, only plain texts are taken.
        per_domain: most texts of a domain.
        max_tokens: longest text.
    """
    counts: dict[str, int] = {}
    chosen: list[ScoredText] = []
    for row in _rows(suite, "test", is_native):
        if counts.get(row.domain, 0) >= per_domain:
            continue
        token_ids = encode_document(text, row)[:max_tokens]
        num_bytes = count_bytes(text.tokenizer, token_ids)
        if len(token_ids) >= _MIN_TOKENS and num_bytes:
            counts[row.domain] = counts.get(row.domain, 0) + 1
            chosen.append(ScoredText(domain=row.domain, token_ids=token_ids, num_bytes=num_bytes))
    return tuple(chosen)


def train_ngrams(text: TextParts, suite: Suite, *, is_native: bool, has_bytes: bool) -> Ngrams | None:
    """Return n-gram models of the suite's training sample, all domains together; None without a sample."""
    sample = [encode_document(text, row) for row in _rows(suite, "train", is_native)]
    if not sample:
        return None
    over_tokens = NgramModel(NGRAM_ORDER, text.tokenizer.vocab_size)
    over_tokens.train(sample)
    if not has_bytes:
        return Ngrams(over_tokens=over_tokens)
    over_bytes = NgramModel(NGRAM_ORDER, num_byte_symbols(text.tokenizer))
    over_bytes.train(byte_symbols(text.tokenizer, token_ids) for token_ids in sample)
    return Ngrams(over_tokens=over_tokens, over_bytes=over_bytes)


def measure_bits(
    subject: Subject, texts: Sequence[ScoredText], ngrams: Ngrams | None, tokenizer: Tokenizer, meter: Meter
) -> Iterator[DomainBits]:
    """Yield the figures of each domain.

    Args:
        subject: the engine.
        texts: what is scored.
        ngrams: models to compare with, or None.
        tokenizer: of the model.
        meter: told of tokens done.
    """
    for domain, members in group_texts(texts).items():
        bits = score_bits(subject, members, meter)
        num_bytes = [float(member.num_bytes) for member in members]
        rivals = _rival_bits(members, ngrams, tokenizer)
        figures = {name: estimate_ratio(values, num_bytes) for name, values in rivals.items()}
        best: Ratio | None = min(figures.values(), key=lambda ratio: ratio.value, default=None)
        yield DomainBits(
            domain=domain,
            num_texts=len(members),
            num_tokens=sum(len(member.token_ids) - 1 for member in members),
            num_bytes=sum(member.num_bytes for member in members),
            bits_per_byte=estimate_ratio([math.fsum(values) for values in bits], num_bytes),
            ngram_bits_per_byte=best,
            token_ngram=figures["tokens"].value if "tokens" in figures else None,
            byte_ngram=figures["bytes"].value if "bytes" in figures else None,
        )


def score_bits(subject: Subject, texts: Sequence[ScoredText], meter: Meter) -> list[list[float]]:
    """Return the bits of every token but the first of each text."""
    bits: list[list[float]] = []
    for text, logprobs in zip(texts, subject.score([text.token_ids for text in texts]), strict=True):
        bits.append([-value / math.log(2) for value in logprobs])
        meter(len(text.token_ids))
    return bits


def group_texts(texts: Sequence[ScoredText]) -> Mapping[str, list[ScoredText]]:
    """Return domain -> texts, in order of first appearance."""
    groups: dict[str, list[ScoredText]] = {}
    for text in texts:
        groups.setdefault(text.domain, []).append(text)
    return groups


def _rival_bits(texts: Sequence[ScoredText], ngrams: Ngrams | None, tokenizer: Tokenizer) -> dict[str, list[float]]:
    if ngrams is None:
        return {}
    found = {"tokens": [math.fsum(ngrams.over_tokens.bits(text.token_ids)) for text in texts]}
    if ngrams.over_bytes is not None:
        found["bytes"] = [_byte_bits(ngrams.over_bytes, tokenizer, text.token_ids) for text in texts]
    return found


def _byte_bits(model: NgramModel, tokenizer: Tokenizer, token_ids: Sequence[int]) -> float:
    """Return the bits of the symbols behind the first token, whose own symbols are given as in the engine."""
    symbols = byte_symbols(tokenizer, token_ids)
    num_given = len(byte_symbols(tokenizer, token_ids[:1]))
    return math.fsum(-math.log2(model.probability(symbols, place)) for place in range(num_given, len(symbols)))


def _rows(suite: Suite, split: Split, is_native: bool) -> Iterator[Text | Dialogue]:
    yield from (row for row in suite.texts if row.split == split)
    if is_native:
        yield from (row for row in suite.dialogues if row.split == split)
