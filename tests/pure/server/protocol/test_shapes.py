"""Objects inside a request are read by table: accepted, ignored, refused, unknown."""

from __future__ import annotations

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.server.protocol.fields import Ignored, Refused
from slipstream.server.protocol.shapes import Shape, check_count, kind_of, refuse_kind, show
from support.answer_world import refusal_of

SHAPE = Shape(
    {"type": (str,), "count": (int,), "content": (str, list)},
    ("type",),
    (Ignored("note", "a note to itself"),),
    (Refused("extra", "nothing is extra here", (False, [])),),
)


def test_accepted_fields_come_back_and_the_others_do_not():
    given = {"type": "a", "count": None, "content": ["x"], "note": {"any": 1}, "extra": False}
    assert SHAPE.read(given, "here") == {"type": "a", "content": ["x"]}


@pytest.mark.parametrize("neutral", [None, False, []])
def test_a_refused_field_may_ask_for_nothing(neutral):
    assert SHAPE.read({"type": "a", "extra": neutral}, "here") == {"type": "a"}


@pytest.mark.parametrize(
    ("value", "param", "kind", "says"),
    [
        ("x", "here", RequestError, "here is a string: give an object with type, count, content"),
        (None, "here", RequestError, "here is null"),
        ({}, "here.type", RequestError, "here.type is missing"),
        ({"type": None}, "here.type", RequestError, "here.type is missing"),
        ({"type": 5}, "here.type", RequestError, "here.type is a number: give a string"),
        ({"type": "a", "count": True}, "here.count", RequestError, "here.count is a boolean: give a number"),
        ({"type": "a", "content": {}}, "here.content", RequestError, "is an object: give a string or a list"),
        ({"type": "a", "extra": True}, "here.extra", UnsupportedFeature, "nothing is extra here"),
        ({"type": "a", "extra": 0}, "here.extra", UnsupportedFeature, "nothing is extra here"),
        ({"type": "a", "surprise": 1}, "here.surprise", RequestError, "is not a known field"),
    ],
)
def test_what_is_not_accepted_is_named(value, param, kind, says):
    error = refusal_of(SHAPE.read, value, "here")
    assert (type(error), error.param) == (kind, param)
    assert says in str(error)


def test_other_types_of_an_object_are_named_with_the_allowed_ones():
    error = refuse_kind("image", ("text", "call"), "messages[2]", "the model reads text")
    assert (error.param, error.code) == ("messages[2].type", "unsupported_feature")
    assert str(error) == "messages[2].type='image' is not served: the model reads text; allowed: text, call"


def test_counts():
    check_count(3, 3, "items", "input")
    error = refusal_of(check_count, 4, 3, "items", "input")
    assert (str(error), error.param) == ("input holds 4 items: give at most 3", "input")


def test_values_are_shown_short():
    assert len(show("x" * 10**6)) < 70
    assert show({"a": 1}) == "an object"
    assert [kind_of(value) for value in (None, True, 1, 1.5, "", [], {}, object())] == [
        "null", "a boolean", "a number", "a number", "a string", "a list", "an object", "another value"
    ]  # fmt: skip
