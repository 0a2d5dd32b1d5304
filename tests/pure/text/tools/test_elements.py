"""Elements to arguments: nesting, what is left out or misplaced, and what is handed back."""

from __future__ import annotations

import pytest

from slipstream.text.tools.elements import Arguments
from slipstream.text.tools.shapes import Shape
from slipstream.text.tools.syntax import NAMESPACE as NS
from slipstream.text.tools.syntax import TagReader
from support.tool_texts import load

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "maybe": {"type": ["string", "null"]},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
        "place": {"type": "object", "properties": {"zip": {"type": "string"}, "item": {"type": "string"}}},
        "either": {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}]},
        "tool_call": {"type": "string"},
        "invoke": {"type": "string"},
    },
}


def tags(text):
    """Return the text with the marker put before each tag."""
    return text.replace("<", f"{NS}<")


def run(pieces):
    """Feed the body of a call; return its arguments, closed, and what was handed back, if it is more than blanks."""
    reader, call, left = TagReader(), Arguments(Shape.of(SCHEMA)), ""
    for piece in pieces:
        for event in reader.feed(piece):
            left += call.on(event)
    left += call.close()
    return load(call.take()), left if left.strip() else ""


NESTING = [
    ("", {}),
    ("<text>a<b>c</b>d</text>", {"text": f"a{NS}<b>c{NS}</b>d"}),
    ("<maybe><b>c</b></maybe>", {"maybe": f"{NS}<b>c{NS}</b>"}),
    ("<place><zip>007</zip><more>1</more></place>", {"place": {"zip": "007", "more": 1}}),
    ("<place><item>x</item></place>", {"place": {"item": "x"}}),
    ("<tags><item>1</item><item></item></tags>", {"tags": ["1", ""]}),
    ("<rows><item><id>1</id></item><item></item></rows>", {"rows": [{"id": 1}, {}]}),
    ("<rows>\n<item>\n<id>1</id>\n</item>\n</rows>", {"rows": [{"id": 1}]}),
    ("<free><a><item>1</item><item><b>x</b></item></a></free>", {"free": {"a": [1, {"b": "x"}]}}),
    ("<free><item><item>1</item></item></free>", {"free": [[1]]}),
    ("<either>text</either>", {"either": "text"}),
    ("<either> <item>1</item></either>", {"either": [1]}),
    ("<either><a>1</a></either>", {"either": {"a": 1}}),
    ("<either>a<b>1</b></either>", {"either": f"a{NS}<b>1{NS}</b>"}),
    ("<count><a>1</a></count>", {"count": {"a": 1}}),
    ("<count><item>1</item></count>", {"count": [1]}),
    ("<tags></tags><place></place><free></free>", {"tags": [], "place": {}, "free": ""}),
    ('<tags>["a", "b"]</tags><place>{"zip": "1"}</place>', {"tags": ["a", "b"], "place": {"zip": "1"}}),
    ("<-A>1</-A><ключ>2</ключ><two words>3</two words>", {"-A": 1, "ключ": 2, "two words": 3}),
    ("<tool_call>x</tool_call><invoke>y</invoke>", {"tool_call": "x", "invoke": "y"}),
]


@pytest.mark.parametrize(("body", "arguments"), NESTING)
def test_nesting(body, arguments):
    body = tags(body)
    assert run([body]) == (arguments, "")
    assert run(list(body)) == (arguments, "")


REPAIRS = [
    # Left out: closing tags, up to the one that closes an outer element.
    ("<place><zip>1</place>", {"place": {"zip": "1"}}, ""),
    ("<rows><item><id>1</rows><count>2", {"rows": [{"id": 1}], "count": 2}, ""),
    # A list or empty element that ends before a name only the object around it knows.
    ("<tags><item>a</item><count>2</count>", {"tags": ["a"], "count": 2}, ""),
    ("<place><count>2</count>", {"place": {}, "count": 2}, ""),
    ("<rows><place><zip>1</zip></place>", {"rows": [], "place": {"zip": "1"}}, ""),
    ("<free><count>2</count></free>", {"free": {"count": 2}}, ""),
    # An opening tag that is missing behind its marker, at several depths.
    ("<>a b</name>", {"name": "a b"}, ""),
    ("<>7</count>", {"count": 7}, ""),
    ("<count>1</count><>a</name>", {"count": 1, "name": "a"}, ""),
    ("<place><>007</zip></place>", {"place": {"zip": "007"}}, ""),
    # What is in a list and is no item.
    ("<rows><id>1</id><item><id>2</id></item></rows>", {"rows": {"id": 1, "item": {"id": 2}}}, ""),
    ("<rows><item></item><id>1</id><x>2</x></rows>", {"rows": [{}, {"id": 1}, {"x": 2}]}, ""),
    # Handed back: text between elements, unknown closing tags, a name given twice, a marker before text.
    ("one<count>1</count> two\n<tags>three</tags>", {"count": 1, "tags": "three"}, "one two\n"),
    ("<count>1</count></nothing>", {"count": 1}, f"{NS}</nothing>"),
    ("<count>1</count><count>2</count><text>a</text>", {"count": 1, "text": "a"}, f"{NS}<count>2{NS}</count>"),
    ("<count>1</count><count><a>2</a></count>", {"count": 1}, f"{NS}<count>{NS}<a>2{NS}</a>{NS}</count>"),
    ("<count>1</count><count>2", {"count": 1}, f"{NS}<count>2"),
    ("<>stray<count>1</count>", {"count": 1}, f"{NS}stray"),
    ("<>\n<count>1</count>", {"count": 1}, ""),
    ("<count>1</count><>2</count>", {"count": 1}, f"{NS}<count>2{NS}</count>"),
    ("<>stray", {}, f"{NS}stray"),
    # Inside text, unknown tags and markers are text.
    ("<text>a</b></text>", {"text": f"a{NS}</b>"}, ""),
    ("<text><></text>", {"text": NS}, ""),
    ("<free>a<>b</free>", {"free": f"a{NS}b"}, ""),
    ("<free></b></free>", {"free": f"{NS}</b>"}, ""),
]


@pytest.mark.parametrize(("body", "arguments", "left"), REPAIRS)
def test_what_is_left_out_or_misplaced(body, arguments, left):
    body = tags(body).replace("<>", "")
    assert run([body]) == (arguments, left)
    assert run(list(body)) == (arguments, left)


def test_what_is_certain_is_returned_once():
    reader, call, shown = TagReader(), Arguments(Shape.of(SCHEMA)), []
    for piece in ("", f"{NS}<text>", "ab", "c", f"{NS}</text>{NS}<count>", "1", "2", f"{NS}</count>", f"{NS}</invoke>"):
        assert not call.is_over
        for event in reader.feed(piece):
            call.on(event)
        shown.append(call.take())
    assert shown == ["{", '"text":', '"ab', "c", '","count":', "", "", "12", "}"]
    assert call.is_over


def test_what_is_open_can_be_asked():
    reader, call = TagReader(), Arguments(Shape.of(SCHEMA))
    assert call.names_open("invoke")
    assert call.declares("tool_call")
    assert not call.declares("other")
    assert not call.takes_tags_as_text
    for event in reader.feed(tags("<place><zip>")):
        call.on(event)
    assert call.names_open("place")
    assert not call.names_open("other")
    assert call.declares("other")
    assert call.takes_tags_as_text
