"""The input of a Responses API request to the conversation that every endpoint shares.

Items are finer than messages: the reasoning, the text and the calls of one turn of the assistant are gathered into one
message. Not here: sampling (the route), and how the shared conversation is checked and rendered.
"""

from __future__ import annotations

from typing import Any

import msgspec

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.frontend.chat import ChatAsk
from slipstream.server.protocol.fields import Ignored, Refused
from slipstream.server.protocol.response_api.requests import ResponseRequest
from slipstream.server.protocol.shapes import Shape, check_count, kind_of, refuse_kind, show
from slipstream.server.protocol.structured import blaming, check_volume
from slipstream.server.protocol.translated import check_choice, check_messages, check_tools
from slipstream.text.messages import MAX_MESSAGES
from slipstream.text.tools.schema import MAX_TOOLS, ToolChoice, ToolSet
from slipstream.wire.grammar import GrammarSpec

_Placed = tuple[str, dict[str, Any]]
"""A message in the shared shape, and the place that it came from."""

_NAMES = {"has tool_calls": "is a function_call", "tool_call_id": "call_id"}
ROLES = ("user", "assistant", "system", "developer")
_ID = Ignored("id", "items are not stored, so none is found by its id")
_STATUS = Ignored("status", "an item is taken as it is")
_SERVER_TOOLS = "the server runs no tools of its own"
_ALONE = (
    Refused("caller", _SERVER_TOOLS, ({"type": "direct"},)),
    Refused("namespace", "tools have no namespaces"),
)
TEXT_PARTS = ("input_text", "output_text", "text")
PART = Shape(
    {"type": (str,), "text": (str,)},
    ("text",),
    (
        Ignored("annotations", "annotations are not part of the chat format"),
        Ignored("logprobs", "they say nothing about the text"),
        Ignored("parsed", "a client's own reading of the text"),
        Ignored("prompt_cache_breakpoint", "equal prompt beginnings are always reused"),
    ),
)
THOUGHT = Shape({"type": (str,), "text": (str,)}, ("text",))
ITEMS: dict[str, Shape] = {
    "message": Shape(
        {"type": (str,), "role": (str,), "content": (str, list)},
        ("role", "content"),
        (_ID, _STATUS, Ignored("phase", "the chat format has no phases")),
    ),
    "reasoning": Shape(
        {"type": (str,), "content": (list,)},
        (),
        (
            _ID,
            _STATUS,
            Ignored("summary", "the model reads reasoning as it was written, which is in content"),
            Ignored("encrypted_content", "only the server that made it can read it"),
        ),
    ),
    "function_call": Shape(
        {"type": (str,), "call_id": (str,), "name": (str,), "arguments": (str,)},
        ("call_id", "name", "arguments"),
        (_ID, _STATUS, Ignored("parsed_arguments", "a client's own reading of the arguments")),
        (*_ALONE, Refused("async", "calls wait for their results", (False,))),
    ),
    "function_call_output": Shape(
        {"type": (str,), "call_id": (str,), "output": (str, list)},
        ("call_id", "output"),
        (_ID, _STATUS, Ignored("name", "the call names the function")),
        _ALONE,
    ),
}
TOOL = Shape(
    {"type": (str,), "name": (str,), "description": (str,), "parameters": (dict,), "strict": (bool,)},
    ("name",),
    (Ignored("output_schema", "the model is not shown what a function returns"),),
    (
        Refused("defer_loading", "every tool is shown to the model", (False,)),
        Refused("allowed_callers", _SERVER_TOOLS, (["direct"], [])),
        Refused("async", "calls wait for their results", (False,)),
    ),
)
CHOICE = Shape({"type": (str,), "name": (str,)}, ("name",))
REASONING = Shape(
    {"effort": (str,)},
    (),
    (
        Ignored("summary", "reasoning is returned as it is"),
        Ignored("generate_summary", "reasoning is returned as it is"),
        Ignored("context", "the chat template decides what of earlier reasoning the model sees"),
    ),
    (Refused("mode", "there is one mode", ("standard",)),),
)
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TEXT = Shape({"format": (dict,)}, (), (), (Refused("verbosity", "the model has no such setting", ("medium",)),))
FORMATS: dict[str, Shape] = {
    "text": Shape({"type": (str,)}),
    "json_object": Shape({"type": (str,)}),
    "json_schema": Shape(
        {"type": (str,), "schema": (dict,)},
        ("schema",),
        (
            Ignored("name", "the model is not shown the schema's name"),
            Ignored("description", "the model is not shown the schema"),
            Ignored("strict", "the schema is always kept to"),
        ),
    ),
}
INCLUDABLE = "reasoning.encrypted_content"


def ask_of(request: ResponseRequest) -> ChatAsk:
    """Return the conversation of a request.

    Args:
        request: its accepted fields.

    Raises:
        RequestError: a shape that is not accepted; `param` says where.
        UnsupportedFeature: a shape that is understood and not served.
    """
    for name in request.include:
        if name != INCLUDABLE:
            raise UnsupportedFeature(
                f"include names {show(name)}, which is not served: only {INCLUDABLE} is",
                param="include",
                code="unsupported_feature",
            )
    messages = _messages_of(request.input)
    if request.instructions:
        messages.insert(0, ("instructions", {"role": "system", "content": request.instructions}))
    tools = _tools_of(request.tools)
    return ChatAsk(
        messages=check_messages(messages, _NAMES),
        tools=tools,
        tool_choice=_choice_of(request.tool_choice, tools),
        template_kwargs=_thinking_of(request.reasoning),
        parallel_tool_calls=request.parallel_tool_calls,
    )


def grammar_of(text: object) -> GrammarSpec | None:
    """Return what the text must look like.

    Raises:
        RequestError: a shape that is not accepted.
        UnsupportedFeature: another format.
    """
    form = {} if text is None else TEXT.read(text, "text").get("format", {"type": "text"})
    kind = form.get("type", "text")
    if not isinstance(kind, str) or kind not in FORMATS:
        raise refuse_kind(kind, tuple(FORMATS), "text.format", "there is no other format")
    found = FORMATS[kind].read(form, "text.format")
    if kind == "text":
        return None
    with blaming("text"):
        check_volume("text.format", form)
        return GrammarSpec.json_object() if kind == "json_object" else GrammarSpec.json_schema(found["schema"])


def effort_of(reasoning: object) -> str | None:
    """Return the effort that is asked for.

    Raises:
        RequestError: it is not one of `EFFORTS`.
    """
    if reasoning is None:
        return None
    effort = REASONING.read(reasoning, "reasoning").get("effort")
    if effort is not None and effort not in EFFORTS:
        raise RequestError(
            f"reasoning.effort={show(effort)} is not allowed: one of {', '.join(EFFORTS)}", param="reasoning.effort"
        )
    return effort


def _thinking_of(reasoning: object) -> dict[str, str]:
    effort = effort_of(reasoning)
    return {} if effort is None else {"thinking_mode": "disabled" if effort == "none" else "enabled"}


def _messages_of(value: str | list[Any]) -> list[_Placed]:
    """Return messages in the shared shape."""
    if isinstance(value, str):
        return [("input", {"role": "user", "content": value})]
    if not value:
        raise RequestError("input is empty: give at least one item", param="input")
    check_count(len(value), MAX_MESSAGES, "items", "input")
    contents = [item.get(name) for item in value if isinstance(item, dict) for name in ("content", "output")]
    check_count(sum(len(part) for part in contents if isinstance(part, list)), MAX_MESSAGES, "parts", "input")
    messages: list[_Placed] = []
    for place, item in enumerate(value):
        _add_item(messages, item, f"input[{place}]")
    return messages


def _add_item(messages: list[_Placed], value: object, where: str) -> None:
    if not isinstance(value, dict):
        raise RequestError(f"{where} is {kind_of(value)}: give an item, an object with type", param=where)
    kind = value.get("type") or "message"
    if not isinstance(kind, str) or kind not in ITEMS:
        raise refuse_kind(kind, tuple(ITEMS), where, "only text and calls of functions are")
    item = ITEMS[kind].read(value, where)
    if kind == "function_call_output":
        output = _text_of(item["output"], f"{where}.output")
        messages.append((where, {"role": "tool", "tool_call_id": item["call_id"], "content": output}))
    elif kind == "function_call":
        function = {"name": item["name"], "arguments": _arguments(item["arguments"], f"{where}.arguments")}
        calls = _turn(messages, where, closed_by=()).setdefault("tool_calls", [])
        calls.append({"id": item["call_id"], "type": "function", "function": function})
    elif kind == "reasoning":
        thoughts = [_thought(part, f"{where}.content[{at}]") for at, part in enumerate(item.get("content", []))]
        turn = _turn(messages, where, closed_by=("reasoning_content", "tool_calls", "content"))
        if any(thoughts):
            turn["reasoning_content"] = "".join(thoughts)
    else:
        _add_message(messages, item, where)


def _arguments(text: str, where: str) -> dict[str, Any]:
    """Return the arguments of a call; a function without parameters is often called with nothing at all."""
    try:
        value = msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RequestError(f"{where} is not JSON ({error}): give the JSON text of an object", param=where) from error
    if not isinstance(value, dict):
        raise RequestError(f"{where} is {kind_of(value)}: give the JSON text of an object", param=where)
    return value


def _add_message(messages: list[_Placed], item: dict[str, Any], where: str) -> None:
    role = item["role"]
    if role not in ROLES:
        raise RequestError(
            f"{where}.role={show(role)} is not allowed: one of {', '.join(ROLES)}", param=f"{where}.role"
        )
    text = _text_of(item["content"], f"{where}.content")
    if role != "assistant":
        messages.append((where, {"role": role, "content": text}))
        return
    turn = messages[-1][1] if messages else {}
    # Text behind calls belongs to their turn: results must follow it.
    has_calls = bool(turn.get("tool_calls"))
    turn = _turn(messages, where, closed_by=() if has_calls else ("content",))
    turn["content"] += text


def _turn(messages: list[_Placed], where: str, *, closed_by: tuple[str, ...]) -> dict[str, Any]:
    """Return the assistant's turn that an item belongs to: the last one, or a new one.

    Args:
        messages: so far; a new turn is added.
        where: place of the item.
        closed_by: what the last turn may not have yet.
    """
    last = messages[-1][1] if messages else {}
    if last.get("role") != "assistant" or any(last.get(field) for field in closed_by):
        last = {"role": "assistant", "content": ""}
        messages.append((where, last))
    return last


def _text_of(content: str | list[Any], where: str) -> str:
    if isinstance(content, str):
        return content
    if not content:
        raise RequestError(f"{where} is an empty list: give a string or at least one text part", param=where)
    return "".join(_text_part(part, f"{where}[{place}]") for place, part in enumerate(content))


def _text_part(value: object, where: str) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(value, dict) and kind not in TEXT_PARTS:
        raise refuse_kind(kind, TEXT_PARTS[:2], where, "the model takes and returns text only")
    return PART.read(value, where)["text"]


def _thought(value: object, where: str) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(value, dict) and kind != "reasoning_text":
        raise refuse_kind(kind, ("reasoning_text",), where, "reasoning is text")
    return THOUGHT.read(value, where)["text"]


def _tools_of(tools: list[Any]) -> ToolSet:
    check_count(len(tools), MAX_TOOLS, "tools", "tools")
    made = []
    for place, value in enumerate(tools):
        where = f"tools[{place}]"
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(value, dict) and kind != "function":
            raise refuse_kind(kind, ("function",), where, _SERVER_TOOLS)
        tool = TOOL.read(value, where)
        made.append({name: part for name, part in tool.items() if name != "type"})
    return check_tools(made, {})


def _choice_of(value: object, tools: ToolSet) -> ToolChoice:
    if not isinstance(value, dict):
        return check_choice(value, tools)
    if value.get("type") != "function":
        raise refuse_kind(value.get("type"), ("function",), "tool_choice", _SERVER_TOOLS)
    name = CHOICE.read(value, "tool_choice")["name"]
    return check_choice({"type": "function", "function": {"name": name}}, tools)
