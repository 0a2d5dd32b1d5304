"""Reasoning and content: the result does not depend on how the text is cut, and the end of reasoning has a place."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slipstream.text.detokenizer import IncrementalDetokenizer
from slipstream.text.reasoning.mode import THINK_CLOSE, THINK_OPEN
from slipstream.text.reasoning.parser import ReasoningParser, split_reasoning
from slipstream.text.tokenizer import Tokenizer
from support.cuts import cut, sizes
from support.tiny_text import tiny_folder

OPEN, CLOSE = THINK_OPEN, THINK_CLOSE
STATES = ("undecided", "reasoning", "content")
states = st.sampled_from(STATES)
fragments = st.sampled_from(
    [OPEN, CLOSE, "\n", " ", "\r\n", "a", "b c", "é", "<", "<mm:", "</mm:thin", "think>", "<mm:think", ">"]
)
texts = st.lists(fragments, max_size=12).map("".join)


def oracle(text, state):
    """Walk over the whole text, stretch by stretch between the tags that count: slow, and reads like the rules."""
    shown = {"reasoning": "", "content": ""}
    is_behind_tag, stretch, at = state != "undecided", "", 0

    def finish(is_before_tag):
        kept = stretch.lstrip("\r\n") if is_behind_tag else stretch
        if kept.strip(" \t\r\n") or not is_before_tag:
            shown["reasoning" if state == "reasoning" else "content"] += kept

    while at < len(text):
        tag = next((tag for tag in (OPEN, CLOSE) if text.startswith(tag, at)), None)
        is_first = not stretch.strip(" \t\r\n")
        if tag and (is_first or state == "undecided" or (state == "reasoning" and tag == CLOSE)):
            finish(is_before_tag=True)
            state, is_behind_tag, stretch = ("reasoning" if tag == OPEN else "content"), True, ""
            at += len(tag)
        else:
            stretch += text[at]
            at += 1
    finish(is_before_tag=False)
    return shown["reasoning"], shown["content"]


def run(pieces, starts_in):
    parser = ReasoningParser(starts_in)
    deltas = [parser.feed(piece) for piece in pieces] + [parser.flush()]
    return "".join(delta.reasoning for delta in deltas), "".join(delta.content for delta in deltas)


CASES = [
    ("undecided", f"{OPEN}why{CLOSE}answer", "why", "answer"),
    ("reasoning", f"why{CLOSE}answer", "why", "answer"),
    ("content", "answer", "", "answer"),
    ("undecided", "answer", "", "answer"),
    # Text before an opening tag is content.
    ("undecided", f"Well. {OPEN}why{CLOSE}answer", "why", "Well. answer"),
    # A closing tag that nothing opened is a delimiter.
    ("undecided", f"{CLOSE}answer", "", "answer"),
    ("undecided", f"some{CLOSE}answer", "", "someanswer"),
    # Repeated and stray closing tags at the start of content are dropped, and blanks between them.
    ("content", f"{CLOSE}\n{CLOSE}\n\nanswer", "", "answer"),
    ("reasoning", f"why{CLOSE}\n {CLOSE}answer", "why", "answer"),
    # Cut off: reasoning stays reasoning.
    ("reasoning", "why and", "why and", ""),
    ("undecided", f"{OPEN}why and", "why and", ""),
    ("undecided", OPEN, "", ""),
    # A prefilled opening tag that the model writes again.
    ("reasoning", f"{OPEN}why{CLOSE}answer", "why", "answer"),
    ("reasoning", f"\n{OPEN}\n{OPEN}why{CLOSE}answer", "why", "answer"),
    # An opening tag inside reasoning is a quotation.
    ("reasoning", f"the tag {OPEN} opens{CLOSE}answer", f"the tag {OPEN} opens", "answer"),
    # Content that quotes tags: JSON with markers in its strings.
    ("content", f'{{"log": "{OPEN}x{CLOSE}"}}', "", f'{{"log": "{OPEN}x{CLOSE}"}}'),
    ("reasoning", f"why{CLOSE}use {OPEN} and {CLOSE}", "why", f"use {OPEN} and {CLOSE}"),
    # A model that thinks although it was told not to.
    ("content", f"{OPEN}why{CLOSE}answer", "why", "answer"),
    # Empty reasoning.
    ("undecided", f"{OPEN}{CLOSE}answer", "", "answer"),
    ("undecided", f"{OPEN}\n{CLOSE}\n\nanswer", "", "answer"),
    # Partial tags at the end are text.
    ("reasoning", "why</mm:thi", "why</mm:thi", ""),
    ("undecided", "a <mm", "", "a <mm"),
    ("content", " <mm:think", "", " <mm:think"),
    ("undecided", "<mm:thin>", "", "<mm:thin>"),
    ("reasoning", "a<</mm:think>b", "a<", "b"),
]


@pytest.mark.parametrize(("starts_in", "text", "reasoning", "content"), CASES)
def test_the_rules_by_example(starts_in, text, reasoning, content):
    assert split_reasoning(text, starts_in) == (reasoning, content)
    assert run(list(text), starts_in) == (reasoning, content)


WHITE_SPACE = [
    ("undecided", f"{OPEN}\n\nwhy\n{CLOSE}\r\n\nanswer\n", "why\n", "answer\n"),
    ("undecided", f"{OPEN} \nwhy{CLOSE}  answer", " \nwhy", "  answer"),
    ("reasoning", "\nwhy", "why", ""),
    ("content", "\n\nanswer", "", "answer"),
    ("undecided", "\n\nanswer", "", "\n\nanswer"),
    ("undecided", f"\n {OPEN}why", "why", ""),
    ("undecided", " \n", "", " \n"),
    ("content", f"{CLOSE}\n", "", ""),
    ("content", "\n \n", "", " \n"),
]


@pytest.mark.parametrize(("starts_in", "text", "reasoning", "content"), WHITE_SPACE)
def test_line_breaks_behind_a_tag_belong_to_it_and_nothing_else_does(starts_in, text, reasoning, content):
    assert split_reasoning(text, starts_in) == (reasoning, content)
    assert run(list(text), starts_in) == (reasoning, content)


@given(texts, states, sizes)
@example(f"a{CLOSE}\n{CLOSE}b", "reasoning", [3])
def test_any_cut_gives_the_oracles_result(text, starts_in, piece_sizes):
    expected = oracle(text, starts_in)
    assert split_reasoning(text, starts_in) == expected
    assert run(cut(text, piece_sizes), starts_in) == expected


@pytest.mark.parametrize("num_pieces", range(1, 13))
@pytest.mark.parametrize("tag", [OPEN, CLOSE])
def test_a_tag_split_over_tokens_is_never_shown(tag, num_pieces):
    """One piece per token, the tag cut into as many as it can be: it is never taken for text."""
    bounds = sorted({round(i * len(tag) / num_pieces) for i in range(num_pieces + 1)})
    pieces = ["a", *(tag[i:j] for i, j in itertools.pairwise(bounds)), "b"]
    starts_in = "undecided" if tag == OPEN else "reasoning"
    assert run(pieces, starts_in) == (("b", "a") if tag == OPEN else ("a", "b"))


@given(st.lists(fragments, max_size=12), states)
def test_no_more_is_withheld_than_the_head_of_a_tag_or_blanks(pieces, starts_in):
    parser, fed = ReasoningParser(starts_in), ""
    for piece in pieces:
        parser.feed(piece)
        fed += piece
    last = parser.flush()
    held = last.reasoning + last.content
    rest = held.lstrip(" \t\r\n")
    assert fed.endswith(rest)
    assert rest not in (OPEN, CLOSE)
    assert OPEN.startswith(rest) or CLOSE.startswith(rest)
    before = fed[: len(fed) - len(rest)].rstrip(" \t\r\n")
    assert held == rest or before == "" or before.endswith((OPEN, CLOSE))


@given(texts, states, sizes)
def test_the_end_of_reasoning_has_a_place(text, starts_in, piece_sizes):
    """Everything from the reported place on is content, and nothing before it is, as far as reasoning ended once."""
    pieces = cut(text, piece_sizes)
    delta = ReasoningParser(starts_in).feed_tokens(pieces)
    ends = [end for end in range(len(text) + 1) if ended_exactly_at(text, end, starts_in)]
    if delta.ended_in is None:
        assert delta.ended_at is None
        assert ends == []
    else:
        assert sum(map(len, pieces[: delta.ended_in])) + delta.ended_at == ends[-1]
        assert 1 <= delta.ended_at <= len(pieces[delta.ended_in])


def ended_exactly_at(text, end, starts_in):
    """Return whether feeding the text up to its character `end` leaves reasoning, by looking at the state alone."""
    before, after = ReasoningParser(starts_in), ReasoningParser(starts_in)
    before.feed(text[: max(0, end - 1)])
    after.feed(text[:end])
    return end > 0 and before.state != "content" and after.state == "content"


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("starts_in", ["reasoning", "undecided"])
def test_the_end_is_found_at_every_place_of_a_run_of_tokens(place, starts_in):
    run_of_tokens = [f"r{i} " for i in range(8)]
    run_of_tokens[place] = CLOSE
    parser = ReasoningParser(starts_in)
    delta = parser.feed_tokens(run_of_tokens)
    assert (delta.ended_in, delta.ended_at) == (place, len(CLOSE))
    assert delta.content.endswith("".join(run_of_tokens[place + 1 :]))
    assert parser.feed_tokens(["x", CLOSE, "y"]).ended_in is None


def test_the_end_may_lie_inside_a_token():
    delta = ReasoningParser("reasoning").feed_tokens(["why", "</mm:", "", 'think>{"', "a"])
    assert (delta.reasoning, delta.content) == ("why", '{"a')
    assert (delta.ended_in, delta.ended_at) == (3, len("think>"))


def test_reasoning_that_resumes_ends_again():
    parser = ReasoningParser("reasoning")
    assert parser.feed(f"a{CLOSE}").ended_at == 1 + len(CLOSE)
    assert parser.feed(f"{OPEN}b").ended_at is None
    assert parser.state == "reasoning"
    assert parser.feed(CLOSE).ended_at == len(CLOSE)


def test_what_was_withheld_is_returned_once():
    parser = ReasoningParser("undecided")
    parser.feed(" <mm:")
    assert parser.flush().content == " <mm:"
    assert parser.flush().content == ""


def test_tokens_of_a_real_tokenizer():
    """Whether a tag is one token or many, the text is the same."""
    tokenizer = Tokenizer.load(tiny_folder())
    pieces = IncrementalDetokenizer(tokenizer, skip_special_tokens=False).feed(tokenizer.encode(f"{OPEN}wäs{CLOSE}gut"))
    parser = ReasoningParser("undecided")
    delta, last = parser.feed_tokens(pieces), parser.flush()
    assert (delta.reasoning + last.reasoning, delta.content + last.content) == ("wäs", "gut")
