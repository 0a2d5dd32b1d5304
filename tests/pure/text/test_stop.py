"""Stop strings: the result does not depend on how the stream is cut, and the cut names its token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.base.errors import RequestError
from slipstream.text.detokenizer import IncrementalDetokenizer
from slipstream.text.stop import MAX_STOP_CHARS, StopStrings
from slipstream.text.tokenizer import Tokenizer
from support.profiles import relaxed
from support.tiny_text import tiny_folder

TOKENIZER = Tokenizer.load(tiny_folder())

letters = st.text(alphabet="ab\n", min_size=0, max_size=4)
stop_lists = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=5), min_size=0, max_size=4)
piece_lists = st.lists(letters, max_size=20)


def oracle(pieces, stops, include):
    """Look at every prefix of the text, shortest first: slow, and obviously right."""
    text = "".join(pieces)
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            num_kept = next(n for n in range(1, len(pieces) + 1) if len("".join(pieces[:n])) >= end)
            return text[:end] if include else text[: end - len(longest)], num_kept, longest
    return text, len(pieces), None


def run(stops, include, runs):
    """Feed runs; return (text, tokens kept, match)."""
    watcher = StopStrings(stops, include_in_output=include)
    text, num_kept = "", 0
    for pieces in runs:
        step = watcher.feed(pieces)
        assert "".join(step.pieces) == step.text
        assert len(step.pieces) == step.num_kept
        text += step.text
        num_kept += step.num_kept
    if watcher.matched is None:
        text += watcher.flush()
    return text, num_kept, watcher.matched


def chunks(pieces, cuts):
    places = sorted({min(place, len(pieces)) for place in cuts})
    return [pieces[a:b] for a, b in zip([0, *places], [*places, len(pieces)], strict=True)]


@relaxed
@given(piece_lists, stop_lists, st.booleans(), st.lists(st.integers(0, 20), max_size=6))
def test_any_chunking_gives_the_oracles_result(pieces, stops, include, cuts):
    assert run(stops, include, chunks(pieces, cuts)) == oracle(pieces, stops, include)


@relaxed
@given(piece_lists, stop_lists)
def test_text_is_held_back_only_while_it_may_become_a_stop_string(pieces, stops):
    watcher = StopStrings(stops)
    fed = shown = ""
    for piece in pieces:
        step = watcher.feed([piece])
        fed += piece
        shown += step.text
        if step.matched:
            return
        held = fed[len(shown) :]
        assert fed.startswith(shown)
        assert held == "" or any(stop.startswith(held) for stop in stops)
        longest = max((n for n in range(len(fed) + 1) for s in stops if s.startswith(fed[len(fed) - n :])), default=0)
        assert len(held) == longest


@relaxed
@given(
    st.text(alphabet="ab \n<[é", max_size=60), st.lists(st.text(alphabet="ab <é", min_size=1, max_size=4), max_size=3)
)
def test_tokens_kept_decode_to_the_text_and_the_stop(text, stops):
    """decode(ids) begins with text + stop, and without the last token it holds no whole stop."""
    ids = TOKENIZER.encode(text)
    pieces = IncrementalDetokenizer(TOKENIZER).feed(ids)
    shown, num_kept, matched = run(stops, False, [pieces])
    if matched is None:
        assert (shown, num_kept) == (TOKENIZER.decode(ids), len(ids))
        return
    assert TOKENIZER.decode(ids[:num_kept]).startswith(shown + matched)
    assert not any(stop in "".join(pieces[: num_kept - 1]) for stop in stops)


def test_the_first_completed_wins_over_the_first_begun():
    assert run(["abcd", "bc"], False, [["abcd"]]) == ("a", 1, "bc")
    assert run(["bcd", "abcd"], False, [["abcd"]]) == ("", 1, "abcd")


def test_work_is_linear_however_repetitive_the_text():
    stops = ["a" * 50 + "b", "a" * 30 + "c"]
    watcher = StopStrings(stops)
    num_chars = 5_000
    for _ in range(num_chars):
        watcher.feed(["a"])
    assert watcher.num_transitions <= 2 * num_chars


def test_after_a_match_nothing_more_is_returned():
    watcher = StopStrings(["b"])
    assert watcher.feed(["a", "b", "c"]).num_kept == 2
    assert watcher.feed(["d"]).text == ""
    assert watcher.feed(["d"]).num_kept == 0


def test_flush_returns_what_was_held_back():
    watcher = StopStrings(["abc"])
    assert watcher.feed(["xab"]).text == "x"
    assert watcher.flush() == "ab"
    assert watcher.flush() == ""


@pytest.mark.parametrize(("stops", "says"), [([""], "empty"), (["a" * (MAX_STOP_CHARS + 1)], "characters")])
def test_impossible_stop_strings_are_refused(stops, says):
    with pytest.raises(RequestError, match=says) as caught:
        StopStrings(stops)
    assert caught.value.param == "stop"


@relaxed
@given(piece_lists, stop_lists, st.booleans())
def test_every_piece_is_what_its_token_made_certain(pieces, stops, include):
    """One token at a time and all at once give the same pieces."""
    single, whole = (StopStrings(stops, include_in_output=include) for _ in range(2))
    expected = [text for piece in pieces for text in single.feed([piece]).pieces]
    assert list(whole.feed(pieces).pieces) == expected
