"""The tools of a request and its choice among them: which shapes are accepted, and what each other shape is told.

Not here: how the template shows tools to the model, and how a choice is enforced while generating.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.text.tools.syntax import MAX_TAG_CHARS, is_element_name

MAX_TOOLS = 256
MAX_SCHEMA_DEPTH = 64

ChoiceMode = Literal["none", "auto", "required", "named"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_MODES: dict[str, ChoiceMode] = {"none": "none", "auto": "auto", "required": "required"}
_FUNCTION_FIELDS = ("name", "description", "parameters", "strict")


class Tool(msgspec.Struct, frozen=True):
    """A function that the model may call.

    Args:
        name: its name.
        description: what it does, or None.
        parameters: JSON schema of its parameters, an object's.
        is_strict: whether the caller asked that arguments follow the schema exactly.
    """

    name: str
    description: str | None
    parameters: dict[str, Any]
    is_strict: bool = False

    def for_template(self) -> dict[str, Any]:
        """Return the tool as chat templates take it: its fields in the order that models were trained on."""
        described = {} if self.description is None else {"description": self.description}
        function = {"name": self.name, **described, "parameters": self.parameters}
        return {"type": "function", "function": function}


class ToolSet(msgspec.Struct, frozen=True):
    """The tools of one request, names distinct, in the caller's order."""

    tools: tuple[Tool, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the functions."""
        return tuple(tool.name for tool in self.tools)

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """The JSON schema of each function's parameters, by name."""
        return {tool.name: tool.parameters for tool in self.tools}


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the model may call tools (auto), must not (none), must (required), or must call a certain one (named).

    Args:
        mode: which of these.
        name: the function to call if named, else None.
    """

    mode: ChoiceMode
    name: str | None = None


def parse_tools(value: object) -> ToolSet:
    """Return the tools of a request; null and an empty list are no tools.

    Args:
        value: the request's `tools`: a list of objects with `type` "function" and `function`.

    Raises:
        RequestError: a shape that is not accepted; `param` says where.
        UnsupportedFeature: a tool that is not a function.
    """
    if value is None:
        return ToolSet()
    if not isinstance(value, list):
        raise RequestError(f"tools is a {_kind(value)}: give a list of tools", param="tools")
    if len(value) > MAX_TOOLS:
        raise RequestError(f"tools has {len(value)} entries: at most {MAX_TOOLS} are allowed", param="tools")
    tools: dict[str, Tool] = {}
    for place, entry in enumerate(value):
        tool = _parse_tool(entry, f"tools[{place}]")
        if tool.name in tools:
            raise RequestError(
                f"tools[{place}].function.name={tool.name!r} is taken by an earlier tool: give each its own name",
                param=f"tools[{place}].function.name",
            )
        tools[tool.name] = tool
    return ToolSet(tuple(tools.values()))


def parse_tool_choice(value: object, tools: ToolSet) -> ToolChoice:
    """Return the choice of a request.

    Args:
        value: the request's `tool_choice`: "none", "auto", "required", or an object that names a function; null is
            auto with tools, and none without.
        tools: the request's tools.

    Raises:
        RequestError: a shape that is not accepted, or a choice that these tools do not allow.
        UnsupportedFeature: a kind of choice that is not served.
    """
    if value is None:
        return ToolChoice("auto" if tools.tools else "none")
    if isinstance(value, str):
        if value not in _MODES:
            raise RequestError(
                f"tool_choice={_short(value)} is not allowed: one of {', '.join(_MODES)}, or an object that names a "
                "function",
                param="tool_choice",
            )
        choice = ToolChoice(_MODES[value] if tools.tools or value == "required" else "none")
    else:
        choice = ToolChoice("named", _chosen_name(value))
    if choice.mode in ("required", "named") and not tools.tools:
        raise RequestError("tool_choice asks for a call, but tools is empty: give tools", param="tool_choice")
    if choice.name is not None and choice.name not in tools.names:
        raise RequestError(
            f"tool_choice names {_short(choice.name)}, which is not among the tools: {', '.join(tools.names)[:200]}",
            param="tool_choice.function.name",
        )
    return choice


def _chosen_name(value: object) -> str:
    if not isinstance(value, dict):
        raise RequestError(
            f"tool_choice is a {_kind(value)}: give one of {', '.join(_MODES)}, or an object that names a function",
            param="tool_choice",
        )
    if value.get("type") != "function":
        raise UnsupportedFeature(
            f'tool_choice.type={_short(value.get("type"))} is not served: only "function" is', param="tool_choice.type"
        )
    function = value.get("function")
    if set(value) != {"type", "function"} or not isinstance(function, dict) or set(function) != {"name"}:
        raise RequestError(
            'tool_choice must be {"type": "function", "function": {"name": …}} and nothing else', param="tool_choice"
        )
    name = function["name"]
    if not isinstance(name, str):
        raise RequestError(
            f"tool_choice.function.name is a {_kind(name)}: give a string", param="tool_choice.function.name"
        )
    return name


def _parse_tool(entry: object, where: str) -> Tool:
    if not isinstance(entry, dict):
        raise RequestError(f"{where} is a {_kind(entry)}: give an object with type and function", param=where)
    if entry.get("type") != "function":
        raise UnsupportedFeature(
            f'{where}.type={_short(entry.get("type"))} is not served: only "function" is', param=f"{where}.type"
        )
    function = entry.get("function")
    if not isinstance(function, dict):
        raise RequestError(
            f"{where}.function is a {_kind(function)}: give an object with name and parameters",
            param=f"{where}.function",
        )
    _refuse_unknown(entry, ("type", "function"), where)
    where += ".function"
    _refuse_unknown(function, _FUNCTION_FIELDS, where)
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise RequestError(
            f"{where}.name={_short(name)} is not allowed: 1 to 64 of the letters a-z, A-Z, digits, underscore, hyphen",
            param=f"{where}.name",
        )
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise RequestError(
            f"{where}.description is a {_kind(description)}: give a string", param=f"{where}.description"
        )
    is_strict = function.get("strict")
    if is_strict is not None and not isinstance(is_strict, bool):
        raise RequestError(f"{where}.strict is a {_kind(is_strict)}: give true or false", param=f"{where}.strict")
    parameters = _parse_parameters(function.get("parameters"), f"{where}.parameters")
    return Tool(name, description, parameters, bool(is_strict))


def _parse_parameters(value: object, where: str) -> dict[str, Any]:
    if value is None or value == {}:
        return {"type": "object", "properties": {}}
    if not isinstance(value, dict):
        raise RequestError(f"{where} is a {_kind(value)}: give a JSON schema of an object", param=where)
    if value.get("type", "object") != "object":
        raise RequestError(
            f'{where}.type={_short(value["type"])} is not allowed: parameters are an object, give "object"',
            param=f"{where}.type",
        )
    properties = value.get("properties", {})
    if not isinstance(properties, dict):
        raise RequestError(f"{where}.properties is a {_kind(properties)}: give an object", param=f"{where}.properties")
    for name in properties:
        if not is_element_name(name):
            raise RequestError(
                f"{where}.properties has {_short(name)}, which the model cannot write: use 1 to {MAX_TAG_CHARS} "
                "characters, no angle brackets or line breaks, no slash at the start",
                param=f"{where}.properties",
            )
    _check_depth(value, where)
    added = {"type": "object", "properties": {}}
    return value | {field: default for field, default in added.items() if field not in value}


def _check_depth(value: object, where: str) -> None:
    level: list[object] = [value]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = [part for node in level for part in _parts(node)]
        if not level:
            return
    raise RequestError(f"{where} is nested deeper than {MAX_SCHEMA_DEPTH} levels: use $defs and $ref", param=where)


def _parts(node: object) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _refuse_unknown(value: dict[Any, Any], known: tuple[str, ...], where: str) -> None:
    for field in value:
        if field not in known:
            raise RequestError(
                f"{where}.{str(field)[:60]} is not a known field: allowed are {', '.join(known)}",
                param=f"{where}.{field}"[:120],
            )


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "string", list: "list"}
    return names.get(type(value), "object")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
