"""Tags of tool calls: found wherever they are cut, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import example, given

from slipstream.text.tools.syntax import MAX_TAG_CHARS, Marker, Tag, TagReader, Text, is_element_name
from slipstream.text.tools.syntax import NAMESPACE as NS
from support.cuts import cut, sizes
from support.tool_texts import broken_texts


def read(pieces):
    """Return events with neighbouring texts joined, and what was left at the end."""
    reader, events = TagReader(), []
    for piece in pieces:
        for event in reader.feed(piece):
            if isinstance(event, Text) and events and isinstance(events[-1], Text):
                event = Text(events.pop().text + event.text)
            events.append(event)
    return events, reader.flush()


def write(events):
    parts = {Text: lambda event: event.text, Marker: lambda event: NS, Tag: lambda event: event.source}
    return "".join(parts[type(event)](event) for event in events)


@given(broken_texts(), sizes)
@example(f"a]<{NS}<b>", [3])
@example(f"{NS}{NS}<b>", [1])
def test_any_cut_gives_the_same_events_and_they_are_the_text(text, piece_sizes):
    whole = read([text])
    assert read(cut(text, piece_sizes)) == whole
    assert write(whole[0]) + "".join(whole[1]) == text


@given(broken_texts())
def test_only_what_may_become_a_tag_is_withheld(text):
    text_left, tag_left = read([text])[1]
    assert text_left == "" or tag_left == ""
    assert NS.startswith(text_left)
    assert text_left != NS
    if tag_left:
        assert tag_left.startswith(NS)
        assert ">" not in tag_left[len(NS) :]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (f"{NS}<a>", [Tag("a", is_closing=False)]),
        (f"{NS}</a b>", [Tag("a b", is_closing=True)]),
        (f"{NS}<-A>", [Tag("-A", is_closing=False)]),
        (f"{NS}x", [Marker(), Text("x")]),
        (f"{NS}<>", [Marker(), Text("<>")]),
        (f"{NS}</>", [Marker(), Text("</>")]),
        (f"{NS}<a<b>", [Marker(), Text("<a<b>")]),
        (f"{NS}<a\n>", [Marker(), Text("<a\n>")]),
        (f"{NS}<{'x' * MAX_TAG_CHARS}>", [Tag("x" * MAX_TAG_CHARS, is_closing=False)]),
        (f"{NS}</{'x' * MAX_TAG_CHARS}>", [Tag("x" * MAX_TAG_CHARS, is_closing=True)]),
        (f"{NS}<{'x' * (MAX_TAG_CHARS + 1)}>", [Marker(), Text(f"<{'x' * (MAX_TAG_CHARS + 1)}>")]),
        (f"]<{NS}<a>", [Text("]<"), Tag("a", is_closing=False)]),
        ("<a>", [Text("<a>")]),
    ],
)
def test_what_is_a_tag(text, events):
    assert read([text]) == (events, ("", ""))
    assert read(list(text)) == (events, ("", ""))


def test_an_endless_tag_is_not_withheld_for_ever():
    reader = TagReader()
    events = reader.feed(f"{NS}<" + "x" * (MAX_TAG_CHARS + 2))
    assert events[0] == Marker()
    assert reader.flush() == ("", "")


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ('invoke name="f"', "f"),
        ("invoke name='f g'", "f g"),
        ("invoke name=f", "f"),
        ('invoke  name = "" ', ""),
        ("invoke", None),
        ("invoke name=", None),
        ('invoke name="f" x="y"', None),
        ('invoker name="f"', None),
    ],
)
def test_the_function_of_a_call(name, function):
    assert Tag(name, is_closing=False).function == function
    assert Tag(name, is_closing=True).function is None


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        *[(name, True) for name in ("a", "-A", "invoke", "a/b", "x" * MAX_TAG_CHARS)],
        *[(name, False) for name in ("", "/", "/a", "a>b", "a<b", "a\r", 'invoke name="f"', "x" * (MAX_TAG_CHARS + 1))],
    ],
)
def test_names_that_elements_can_have(name, is_allowed):
    assert is_element_name(name) == is_allowed
    opening = Tag(name, is_closing=False)
    is_read_back = read([opening.source])[0] == [opening] and opening.function is None
    assert is_read_back == is_allowed
