"""Tool calls: any cut gives the same result, arguments stream, and nothing that the model wrote is lost."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slipstream.text.reasoning.parser import ReasoningParser
from slipstream.text.tools.parser import CallDelta, ToolCallParser, UnfinishedCall, split_tool_calls
from slipstream.text.tools.render import render_tool_call, render_tool_calls
from slipstream.text.tools.syntax import NAMESPACE as NS
from support.cuts import cut, sizes
from support.tool_texts import PARAMETERS, broken_texts, load, load_calls, run, texts_of_words

BEGIN = f'{NS}<tool_call>{NS}<invoke name="f">'
END = f"{NS}</invoke>{NS}</tool_call>"


@given(broken_texts(), sizes)
@example(f"{BEGIN}{NS}<n>1{NS}</n> x {END}\n y", [1])
@example(f"{BEGIN}{NS}12{NS}</n>{END}", [13])
def test_any_cut_gives_the_same_answer(text, piece_sizes):
    whole = run([text])
    assert run(cut(text, piece_sizes)) == whole
    assert run(list(text)) == whole


@given(broken_texts())
def test_arguments_are_json_whatever_was_written(text):
    """Finished calls as they are, an unfinished one with its closing; ids and places count up."""
    answer = run([text])
    for call, (name, arguments) in zip(answer.calls, load_calls(answer), strict=True):
        assert name in ("f", "g")
        assert isinstance(arguments, dict)
        is_last = answer.unfinished is not None and answer.unfinished.index == len(answer.calls) - 1
        assert (call is answer.calls[-1] and is_last) or load(call.arguments) == arguments
    assert [call.id for call in answer.calls] == [f"call-{place}" for place in range(len(answer.calls))]


@given(texts_of_words(), sizes)
def test_no_word_is_lost(text_and_words, piece_sizes):
    """Whatever is left out or misplaced, each word arrives once: in the arguments or in the content."""
    text, words = text_and_words
    answer = run(cut(text, piece_sizes))
    closing = answer.unfinished.closing if answer.unfinished else ""
    arrived = answer.content + "".join(call.arguments for call in answer.calls) + closing
    assert [arrived.count(word) for word in words] == [1] * len(words)


CONTENT = [
    ("plain", "plain", 0),
    (" \n", " \n", 0),
    (f"I look.\n\n{BEGIN}{END}\n", "I look.", 1),
    (f"{BEGIN}{END}", "", 1),
    (f"a{BEGIN}{END}\n b\n", "a\n b\n", 1),
    (f"{BEGIN}{END}\n\n{BEGIN}{END}", "", 2),
    # Markers without a call are content.
    (f"a {NS} b", f"a {NS} b", 0),
    (f"a {NS}<b>c{NS}</b>", f"a {NS}<b>c{NS}</b>", 0),
    (f"{NS}</tool_call>", f"{NS}</tool_call>", 0),
    ("<tool_call>", "<tool_call>", 0),
    # Cut off before a call: markup is no content.
    (f"a {NS}<tool_c", "a", 0),
    (f"a {NS}", "a", 0),
    (f'{NS}<tool_call>{NS}<invoke name="f', "", 0),
    ("a ]<]mini", "a ]<]mini", 0),
    (f"a {NS}<tool_call>", "a", 0),
    # Inside a block, what is no call is content.
    (f"{NS}<tool_call>note{NS}<invoke>{NS}</tool_call>", f"note{NS}<invoke>", 0),
    (f"{BEGIN}{NS}</invoke> more {END}", f" more {NS}</invoke>", 1),
]


@pytest.mark.parametrize(("text", "content", "num_calls"), CONTENT)
def test_content_around_calls(text, content, num_calls):
    for pieces in ([text], list(text)):
        answer = run(pieces)
        assert (answer.content, len(answer.calls)) == (content, num_calls)
        assert answer.unfinished is None


CALLS = [
    # White space between tags means nothing.
    (
        f'{NS}<tool_call>\n{NS}<invoke name="f">\n  {NS}<a>x{NS}</a>\n{NS}<n>1{NS}</n>\n'
        f"{NS}</invoke>\n{NS}</tool_call>",
        [("f", {"a": "x", "n": 1})],
    ),
    # Several calls in a block, and blocks one after the other.
    (f'{BEGIN}{NS}</invoke>{NS}<invoke name="g">{END}{BEGIN}{END}', [("f", {}), ("g", {}), ("f", {})]),
    # Names are reported as written, known or not; other ways to write the header.
    (f'{NS}<tool_call>{NS}<invoke name="no such: tool">{NS}<n>1{NS}</n>{END}', [("no such: tool", {"n": 1})]),
    (f"{NS}<tool_call>{NS}<invoke name='g'>{NS}</invoke>{NS}<invoke  name = g>{END}", [("g", {}), ("g", {})]),
    # Left out: the block's tags, the end of a call.
    (f'{NS}<invoke name="f">{NS}<n>1{NS}</n>{NS}</invoke>', [("f", {"n": 1})]),
    (f"{BEGIN}{NS}<n>1{NS}</n>{NS}</tool_call>", [("f", {"n": 1})]),
    (f'{BEGIN}{NS}<n>1{NS}</n>{NS}<invoke name="g">{END}', [("f", {"n": 1}), ("g", {})]),
    (f"{BEGIN}{NS}<n>1{NS}</n>{BEGIN}{END}", [("f", {"n": 1}), ("f", {})]),
    (f"{BEGIN}{NS}<a>x{NS}</tool_call>", [("f", {"a": "x"})]),
]


@pytest.mark.parametrize(("text", "calls"), CALLS)
def test_blocks_and_calls(text, calls):
    for pieces in ([text], list(text)):
        answer = run(pieces)
        assert load_calls(answer) == calls
        assert (answer.content, answer.unfinished) == ("", None)


def test_stray_text_costs_no_parameter():
    text = f"{BEGIN}{NS}<a>1{NS}</a> and also\n{NS}<n>2{NS}</n>oh{NS}<l>{NS}<item>3{NS}</item>,{NS}</l>{END}"
    for pieces in ([text], list(text)):
        answer = run(pieces)
        assert load_calls(answer) == [("f", {"a": "1", "n": 2, "l": [3]})]
        assert answer.content == " and alsooh,"


def test_a_first_parameter_without_its_opening_tag_is_understood():
    text = f"{BEGIN}{NS}offer.docx{NS}</filename>{NS}<a>Hello{NS}</a>{END}"
    answer = run([text])
    assert load_calls(answer) == [("f", {"filename": "offer.docx", "a": "Hello"})]
    assert answer.content == ""


UNFINISHED = [
    (f"{BEGIN}{NS}<a>rm -rf /tm", '{"a":"rm -rf /tm', '"}'),
    (f"{BEGIN}{NS}<a>x]<]mini", '{"a":"x]<]mini', '"}'),
    (f"{BEGIN}{NS}<a>x{NS}</", '{"a":"x', '"}'),
    (f"{BEGIN}{NS}<n>12", '{"n":', "12}"),
    (f"{BEGIN}{NS}<n>", '{"n":', '""}'),
    (f"{BEGIN}{NS}<l>{NS}<item>1{NS}</item>{NS}<item>2", '{"l":[1,', "2]}"),
    (f"{BEGIN}{NS}<o>{NS}<x>1{NS}</x>", '{"o":{"x":"1"', "}}"),
    (f"{BEGIN}{NS}<a>x{NS}</a>", '{"a":"x"', "}"),
    (BEGIN, "{", "}"),
    (f"{BEGIN}{NS}<a>x{NS}</a>{NS}<b", '{"a":"x"', "}"),
]


@pytest.mark.parametrize(("text", "arguments", "closing"), UNFINISHED)
def test_a_call_cut_off_is_reported_and_not_made_whole(text, arguments, closing):
    for pieces in ([text], list(text)):
        answer = run(pieces)
        assert answer.calls[0].arguments == arguments
        assert answer.unfinished == UnfinishedCall(0, closing)
        assert answer.content == ""
        with pytest.raises(ValueError):
            load(arguments)
        load(arguments + closing)


def test_only_the_block_cut_off_leaves_a_finished_call():
    answer = run([f"{BEGIN}{NS}<n>1{NS}</n>{NS}</invoke>"])
    assert answer.unfinished is None
    assert load(answer.calls[0].arguments) == {"n": 1}


LONG = "All work and no play. " * 500
LONG_CALLS = [
    ("f", {"a": LONG}),  # a string by its schema
    ("f", {"s": LONG}),  # a string or null
    ("f", {"o": {"x": LONG}}),  # inside an object
    ("f", {"other": LONG}),  # nothing known of the member
    ("unknown", {"a": LONG}),  # nothing known of the function
    ("unknown", {"l": [{"deep": LONG}]}),
    ("f", {"l": list(range(2_500))}),  # many short values
]


@pytest.mark.parametrize("call", LONG_CALLS, ids=lambda call: f"{call[0]}-{next(iter(call[1]))}")
@pytest.mark.parametrize("size", [1, 5, 64])
def test_long_arguments_arrive_in_small_deltas_from_the_start(call, size):
    """No delta is much larger than what was fed, the first comes with the value, and no long stretch is without one."""
    text = render_tool_call(*call)
    parser = ToolCallParser(PARAMETERS, lambda: "id")
    num_fed, num_shown, last_fed = 0, 0, 0
    fed_at_first_value = None
    for piece in cut(text, [size]):
        num_fed += len(piece)
        for delta in parser.feed(piece).calls:
            assert len(delta.arguments) <= len(piece) + 64
            assert num_fed - last_fed <= size + 80
            last_fed, num_shown = num_fed, num_shown + len(delta.arguments)
        if num_shown > 10 and fed_at_first_value is None:
            fed_at_first_value = num_fed
    assert len(text) > 10_000
    assert fed_at_first_value is not None
    assert fed_at_first_value < 400
    assert parser.flush().unfinished is None


def test_deltas_of_a_call_by_example():
    ids = iter(["one", "two"])
    parser = ToolCallParser(PARAMETERS, lambda: next(ids))
    assert parser.feed("Hm. ").content == "Hm."
    assert parser.feed(f"{NS}<tool_call>").calls == ()
    assert parser.feed(f'{NS}<invoke name="f">').calls == (CallDelta(0, "{", "one", "f"),)
    assert parser.feed(f"{NS}<a>x").calls == (CallDelta(0, '"a":"x'),)
    assert parser.feed('"y').calls == (CallDelta(0, '\\"y'),)
    assert parser.feed(f'{NS}</a>{NS}</invoke>{NS}<invoke name="g">{NS}<b>').calls == (
        CallDelta(0, '"}'),
        CallDelta(1, '{"b":', "two", "g"),
    )
    assert parser.num_calls == 2


@given(st.lists(st.sampled_from(["f", "g"]), min_size=1, max_size=4), sizes)
def test_calls_behind_reasoning(functions, piece_sizes):
    """The two parsers in a row: a call inside reasoning is reasoning, one behind it is a call."""
    block = render_tool_calls([(name, {"a": name}) for name in functions])
    reasoning = ReasoningParser("reasoning")
    parts = [reasoning.feed(piece) for piece in cut(f"maybe {block}</mm:think>\n\nOK.{block}", piece_sizes)]
    parts.append(reasoning.flush())
    answer = run([part.content for part in parts])
    assert "".join(part.reasoning for part in parts) == f"maybe {block}"
    assert answer.content == "OK."
    assert load_calls(answer) == [(name, {"a": name}) for name in functions]


def test_what_was_withheld_is_returned_once():
    parser = ToolCallParser(PARAMETERS, lambda: "id")
    assert parser.feed("a ]<]").content == "a"
    assert parser.flush().content == " ]<]"
    assert parser.flush().content == ""


@pytest.mark.parametrize(
    ("text", "own_end", "cut_off"),
    [
        ("a ]<]mini", "a ]<]mini", "a"),
        ("a[0]", "a[0]", "a[0]"),
        ("]<]", "]<]", ""),
        (f"{BEGIN}{NS}<a>x{NS}</a>]<]m", "]<]m", ""),
    ],
)
def test_what_is_likely_the_head_of_a_marker_is_content_only_if_the_model_ended_there(text, own_end, cut_off):
    for is_own_end, content in ((True, own_end), (False, cut_off)):
        parser = ToolCallParser(PARAMETERS, lambda: "id")
        assert parser.feed(text).content + parser.flush(is_own_end=is_own_end).content == content


def test_a_whole_answer_at_once():
    answer = split_tool_calls(f"a{BEGIN}{END}", PARAMETERS, lambda: "id")
    assert (answer.content, answer.calls[0].id, answer.calls[0].arguments) == ("a", "id", "{}")
