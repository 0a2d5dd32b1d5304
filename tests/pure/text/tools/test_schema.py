"""Tools and tool choices of requests: accepted shapes, and what each other shape is told."""

from __future__ import annotations

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.text.tools.schema import (
    MAX_SCHEMA_DEPTH,
    MAX_TOOLS,
    Tool,
    ToolChoice,
    ToolSet,
    parse_tool_choice,
    parse_tools,
)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": True,
    },
}


def tool(**fields):
    return {"type": "function", "function": {"name": "f", **fields}}


def nested(levels):
    """Return a schema with this many levels of objects, its own included."""
    schema: dict = {}
    for _ in range((levels - 1) // 2):
        schema = {"properties": {"a": schema}}
    return {"type": "object", "x": schema} if levels % 2 else schema


def test_a_tool_is_kept_as_given():
    found = parse_tools([WEATHER, tool()])
    parameters = WEATHER["function"]["parameters"]
    assert found.names == ("get_weather", "f")
    assert found.tools[0] == Tool("get_weather", "The weather of a city", parameters, is_strict=True)
    assert found.parameters["get_weather"] == parameters
    assert found.tools[0].for_template() == {
        "type": "function",
        "function": {"name": "get_weather", "description": "The weather of a city", "parameters": parameters},
    }


@pytest.mark.parametrize("given", [{}, {"parameters": None}, {"parameters": {}}, {"description": None, "strict": None}])
def test_what_a_tool_leaves_open(given):
    (found,) = parse_tools([tool(**given)]).tools
    assert found == Tool("f", None, {"type": "object", "properties": {}}, is_strict=False)
    assert "description" not in found.for_template()["function"]


def test_parameters_are_completed_behind_what_was_given():
    (found,) = parse_tools([tool(parameters={"required": [], "properties": {"a": {}}})]).tools
    assert list(found.parameters) == ["required", "properties", "type"]


@pytest.mark.parametrize("value", [None, []])
def test_no_tools(value):
    assert parse_tools(value) == ToolSet()


@pytest.mark.parametrize(
    ("value", "param", "says"),
    [
        ("f", "tools", "string"),
        ({}, "tools", "object"),
        ([tool()] * (MAX_TOOLS + 1), "tools", "at most"),
        ([3], "tools[0]", "number"),
        ([WEATHER, {"type": "function"}], "tools[1].function", "null"),
        ([{"type": "function", "function": "f"}], "tools[0].function", "string"),
        ([{**tool(), "extra": 1}], "tools[0].extra", "type, function"),
        ([tool(extra=1)], "tools[0].function.extra", "parameters"),
        ([tool(name="")], "tools[0].function.name", "1 to 64"),
        ([tool(name="x" * 65)], "tools[0].function.name", "1 to 64"),
        ([tool(name="a b")], "tools[0].function.name", "1 to 64"),
        ([tool(name="a\n")], "tools[0].function.name", "1 to 64"),
        ([tool(name=None)], "tools[0].function.name", "1 to 64"),
        ([tool(), WEATHER, tool()], "tools[2].function.name", "earlier"),
        ([tool(description=1)], "tools[0].function.description", "number"),
        ([tool(strict="yes")], "tools[0].function.strict", "string"),
        ([tool(parameters=[])], "tools[0].function.parameters", "list"),
        ([tool(parameters={"type": "string"})], "tools[0].function.parameters.type", "object"),
        ([tool(parameters={"properties": []})], "tools[0].function.parameters.properties", "list"),
        ([tool(parameters={"properties": {"a>b": {}}})], "tools[0].function.parameters.properties", "a>b"),
        ([tool(parameters={"properties": {"": {}}})], "tools[0].function.parameters.properties", "''"),
        ([tool(parameters=nested(MAX_SCHEMA_DEPTH + 1))], "tools[0].function.parameters", "deeper"),
    ],
)
def test_other_shapes_are_refused(value, param, says):
    with pytest.raises(RequestError, match=says) as caught:
        parse_tools(value)
    assert caught.value.param == param
    assert not isinstance(caught.value, UnsupportedFeature)


@pytest.mark.parametrize("kind", ["custom", "web_search", None, 3])
def test_tools_that_are_no_functions_are_not_served(kind):
    with pytest.raises(UnsupportedFeature, match="function") as caught:
        parse_tools([{"type": kind}])
    assert caught.value.param == "tools[0].type"


def test_depth_is_limited_at_the_limit():
    assert parse_tools([tool(parameters=nested(MAX_SCHEMA_DEPTH - 1))]).names == ("f",)
    deep: dict = {}
    for _ in range(100_000):
        deep = {"items": deep}
    with pytest.raises(RequestError, match="deeper"):
        parse_tools([tool(parameters={"properties": {"a": deep}})])


TOOLS = parse_tools([WEATHER, tool()])
NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("value", "tools", "choice"),
    [
        (None, TOOLS, ToolChoice("auto")),
        (None, ToolSet(), ToolChoice("none")),
        ("none", TOOLS, ToolChoice("none")),
        ("auto", TOOLS, ToolChoice("auto")),
        ("auto", ToolSet(), ToolChoice("none")),
        ("none", ToolSet(), ToolChoice("none")),
        ("required", TOOLS, ToolChoice("required")),
        (NAMED, TOOLS, ToolChoice("named", "f")),
    ],
)
def test_choices(value, tools, choice):
    assert parse_tool_choice(value, tools) == choice


@pytest.mark.parametrize(
    ("value", "tools", "param", "says"),
    [
        ("any", TOOLS, "tool_choice", "none, auto, required"),
        (3, TOOLS, "tool_choice", "number"),
        (["f"], TOOLS, "tool_choice", "list"),
        ({"type": "function", "name": "f"}, TOOLS, "tool_choice", "nothing else"),
        ({"type": "function", "function": {"name": "f", "x": 1}}, TOOLS, "tool_choice", "nothing else"),
        ({"type": "function", "function": {"name": 1}}, TOOLS, "tool_choice.function.name", "number"),
        ({"type": "function", "function": {"name": "g"}}, TOOLS, "tool_choice.function.name", "get_weather, f"),
        ("required", ToolSet(), "tool_choice", "empty"),
        (NAMED, ToolSet(), "tool_choice", "empty"),
    ],
)
def test_other_choices_are_refused(value, tools, param, says):
    with pytest.raises(RequestError, match=says) as caught:
        parse_tool_choice(value, tools)
    assert caught.value.param == param


@pytest.mark.parametrize("value", [{"type": "allowed_tools"}, {"function": {"name": "f"}}, {}])
def test_kinds_of_choice_that_are_not_served(value):
    with pytest.raises(UnsupportedFeature) as caught:
        parse_tool_choice(value, TOOLS)
    assert caught.value.param == "tool_choice.type"
