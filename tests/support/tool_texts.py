"""Tool calls for tests: schemas with values that follow them, and texts between well-formed and broken."""

from __future__ import annotations

import itertools
import json

from hypothesis import strategies as st

from slipstream.text.tools.parser import ToolCallParser, join_deltas
from slipstream.text.tools.syntax import NAMESPACE as NS

PARAMETERS = {
    "f": {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "n": {"type": "integer"},
            "s": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "o": {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "boolean"}}},
            "l": {"type": "array", "items": {"type": "number"}},
        },
    }
}

# Words with which a tag may be made inside a string, and what JSON must escape.
_STRING_PARTS = [NS, "<item>", "</a>", f"{NS}<b>", f"{NS}</a>", f"{NS}</item>", "]<", '"', "\\", "\n", " ", "é", "😀"]
_STRING_PARTS += ["\u2028", "\x00", "null", "1", "{", "[", "x", "True", "-"]
strings = st.lists(st.sampled_from(_STRING_PARTS), max_size=6).map("".join)
names = st.sampled_from(["a", "b", "item", "-A", "invoke", "tool_call", "ключ", "two words", 'q"q'])
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers()

_LEAVES = [
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"enum": ["a", "b 2", "3"]},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"type": ["integer", "null"]},
    {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
    {},
]


def _object_schema(children):
    members = st.dictionaries(names, children, max_size=4)
    return members.map(lambda found: {"type": "object", "properties": found})


schemas = st.recursive(
    st.sampled_from(_LEAVES),
    lambda children: _object_schema(children) | children.map(lambda items: {"type": "array", "items": items}),
    max_leaves=8,
)
parameter_schemas = _object_schema(schemas)
_prose = strings.filter(lambda text: text.strip(" \t\r\n") != "null")
_leaf_values = {
    "string": strings,
    "integer": st.integers(),
    "number": numbers,
    "boolean": st.booleans(),
    "integer or null": st.integers() | st.none(),
    "integer or boolean": st.integers() | st.booleans(),
    "string or null": _prose | st.none(),
    "string, null possible": _prose,
    "anything": st.integers() | st.booleans() | strings.map(lambda text: "p" + text),
}


def _draw_value(draw, schema, *, is_item=False):
    """Draw a value that follows the schema and that the syntax can carry.

    Null is what a member loses, and a list keeps it only where no string could stand.
    """
    kind = schema.get("type")
    if kind == "object":
        return {name: _draw_value(draw, inner) for name, inner in schema["properties"].items() if draw(st.booleans())}
    if kind == "array":
        return [_draw_value(draw, schema["items"], is_item=True) for _ in range(draw(st.integers(0, 3)))]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if kind == ["integer", "null"]:
        kind = "integer or null"
    elif "oneOf" in schema:
        kind = "integer or boolean"
    elif "anyOf" in schema:
        kind = "string, null possible" if is_item else "string or null"
    return draw(_leaf_values[kind or "anything"])


@st.composite
def typed_calls(draw):
    """Return the schema of a function's parameters, some of it behind references, and arguments that follow it."""
    schema = draw(parameter_schemas)
    arguments = _draw_value(draw, schema)
    whole = {"type": "object", "properties": dict(schema["properties"]), "$defs": {}}
    for place, (name, inner) in enumerate(schema["properties"].items()):
        if draw(st.booleans()):
            whole["$defs"][f"d/{place}"] = inner
            whole["properties"][name] = {"$ref": f"#/$defs/d~1{place}"}
    return whole, arguments


def without_null_members(value):
    """Return the value as the syntax carries it."""
    if isinstance(value, dict):
        return {key: without_null_members(inner) for key, inner in value.items() if inner is not None}
    return [without_null_members(inner) for inner in value] if isinstance(value, list) else value


_TAGS = ["tool_call", 'invoke name="f"', 'invoke name="g"', "a", "n", "s", "o", "x", "y", "l", "item", "other"]
_TAGS += ["/tool_call", "/invoke", "/a", "/n", "/s", "/o", "/x", "/y", "/l", "/item", "/other"]
tags = st.sampled_from(_TAGS).map(lambda tag: f"{NS}<{tag}>")
_TEXTS = ["\n", "  ", "w ", "12", " -1.50", "tru", "null", "{", '{"k": [1]}', '"', "<b>", "]", "é", NS]
broken_parts = tags | st.sampled_from([*_TEXTS, "]<]mini", f"{NS}<", f"{NS}</it", "max[>[", ">"])


@st.composite
def broken_texts(draw):
    """Return tags and text in any order, often inside a call."""
    head = draw(st.sampled_from(["", "w", f'{NS}<tool_call>\n{NS}<invoke name="f">', f"{NS}<tool_call>"]))
    return head + "".join(draw(st.lists(broken_parts, max_size=16)))


@st.composite
def texts_of_words(draw):
    """Return tags and single words in any order, each word a different one, and the words."""
    num_words = itertools.count()
    words, parts = [], [draw(st.sampled_from(["", f'{NS}<tool_call>{NS}<invoke name="f">']))]
    for is_word in draw(st.lists(st.booleans(), max_size=24)):
        if is_word:
            words.append(f"w{next(num_words)}w")
            parts.append(draw(st.sampled_from(["", "\n", NS])) + words[-1])
        else:
            parts.append(draw(tags))
    return "".join(parts), words


def run(pieces, parameters=PARAMETERS):
    """Feed the pieces to a parser; return the answer."""
    numbered = itertools.count()
    parser = ToolCallParser(parameters, lambda: f"call-{next(numbered)}")
    return join_deltas([*(parser.feed(piece) for piece in pieces), parser.flush()])


def load(text):
    """Return the value of JSON text, in which no name is given twice and no number is outside JSON."""
    return json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse)


def _distinct(pairs):
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def _refuse(name):
    raise AssertionError(name)


def load_calls(answer):
    """Return name and arguments of each call, an unfinished one closed as the answer says."""
    texts = [call.arguments for call in answer.calls]
    if answer.unfinished is not None:
        texts[answer.unfinished.index] += answer.unfinished.closing
    return [(call.name, load(text)) for call, text in zip(answer.calls, texts, strict=True)]
