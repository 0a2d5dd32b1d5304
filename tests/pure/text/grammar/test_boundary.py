"""The end of reasoning is found wherever a plain text search finds it."""

from __future__ import annotations

import random

import pytest

from slipstream.base.errors import CheckpointError
from slipstream.text.grammar.bitmask import allowed_tokens
from slipstream.text.grammar.boundary import OVERRUN, REASONING_END, ReasoningEnd
from support.grammar_world import grammar_tokenizer, letters, marker_id, model_vocab_size, spell

TOKENIZER = grammar_tokenizer()
ALL = set(range(model_vocab_size()))


@pytest.fixture(scope="module")
def end():
    return ReasoningEnd(TOKENIZER, model_vocab_size())


def run(end, tokens):
    """The state after each token, up to the end of the marker."""
    states, state = [], 0
    for token in tokens:
        state = end.advance(state, token)
        states.append(state)
        if state in (end.passed, OVERRUN):
            break
    return states


def overlap(text, marker):
    """By hand: the longest proper head of the marker that the text ends with."""
    return max(size for size in range(len(marker)) if text.endswith(marker[:size]))


def random_cuts(text, draws):
    """The text as ids of random vocabulary entries that spell it."""
    entries = {
        TOKENIZER.token_bytes(id_): id_ for id_ in range(TOKENIZER.vocab_size) if id_ not in TOKENIZER.special_ids
    }
    rest, ids = text.encode(), []
    while rest:
        sizes = [size for size in range(1, 12) if rest[:size] in entries and len(rest) >= size]
        size = draws.choice(sizes)
        ids.append(entries[rest[:size]])
        rest = rest[size:]
    return ids


def test_the_control_token_and_every_spelling_of_it_end_reasoning(end):
    assert run(end, [marker_id()]) == [end.passed]
    assert run(end, letters(REASONING_END))[-1] == end.passed
    assert run(end, spell(REASONING_END))[-1] == end.passed
    draws = random.Random(3)
    cuts = {tuple(random_cuts(REASONING_END, draws)) for _ in range(200)}
    assert len(cuts) > 10
    for tokens in cuts:
        states = run(end, tokens)
        assert states[-1] == end.passed
        assert len(states) == len(tokens)


@pytest.mark.parametrize("marker", [REASONING_END, "aab", "aaa", "abab", "<</m"])
def test_states_are_those_of_a_text_search(marker):
    end = ReasoningEnd(TOKENIZER, model_vocab_size(), marker)
    draws = random.Random(marker)
    pieces = [*marker, marker[:2], marker[:-1], marker, "x", "a", "<", "</mm:", "think"]
    num_found = 0
    for _ in range(300):
        text = "".join(draws.choice(pieces) for _ in range(draws.randrange(12)))
        tokens = random_cuts(text, draws)
        seen = b""
        for token, state in zip(tokens, run(end, tokens), strict=False):
            seen += TOKENIZER.token_bytes(token)
            place = seen.find(marker.encode())
            if place < 0:
                assert state == overlap(seen, marker.encode())
            else:
                num_found += 1
                assert state == (end.passed if place + len(marker.encode()) == len(seen) else OVERRUN)
                break
    assert num_found > 20


def test_tokens_that_run_over_the_marker_are_not_allowed(end):
    token_bytes = TOKENIZER.token_bytes
    num_overrun = 0
    for state in range(end.passed):
        head = REASONING_END.encode()[:state]
        allowed = set(allowed_tokens(end.mask(state), end.vocab_size))
        for token in range(TOKENIZER.vocab_size):
            text = head + token_bytes(token)
            place = text.find(REASONING_END.encode())
            is_overrun = place >= 0 and place + len(REASONING_END) < len(text)
            assert (token in allowed) is not (is_overrun or token in TOKENIZER.eos_token_ids)
            num_overrun += is_overrun
        assert allowed >= set(range(TOKENIZER.vocab_size, end.vocab_size))
    assert num_overrun > 5
    assert set(allowed_tokens(end.mask(0), end.vocab_size)) == ALL - set(TOKENIZER.eos_token_ids)


def test_the_engine_s_end_tokens_win_over_the_tokenizer_s():
    end = ReasoningEnd(TOKENIZER, model_vocab_size(), eos_ids=(7, 9))
    assert ALL - set(allowed_tokens(end.mask(0), end.vocab_size)) == {7, 9}


def test_ids_without_text_change_nothing(end):
    for token in (TOKENIZER.vocab_size, model_vocab_size(), -1):
        assert [end.advance(state, token) for state in range(end.passed)] == list(range(end.passed))


def test_masks_are_shared_and_cannot_be_written(end):
    with pytest.raises(ValueError, match="read-only"):
        end.mask(0)[:] = 0


@pytest.mark.parametrize("marker", ["", "x" * 256])
def test_a_marker_that_cannot_be_followed_is_refused(marker):
    with pytest.raises(CheckpointError, match="1 to 255 bytes"):
        ReasoningEnd(TOKENIZER, model_vocab_size(), marker)
