"""A conversation of the Messages API to one that every endpoint shares.

Each message becomes one message, except that the results of tools leave the user's message they came in: each is a
message of its own, before or after the text beside it. Blocks of an assistant's message that are text, reasoning or
calls are gathered by kind. Not here: sampling (the route), and how the shared conversation is checked and rendered.
"""

from __future__ import annotations

from typing import Any

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.frontend.chat import ChatAsk
from slipstream.server.protocol.fields import Ignored, Refused
from slipstream.server.protocol.messages.requests import ConversationFields
from slipstream.server.protocol.shapes import Shape, check_count, kind_of, refuse_kind, show
from slipstream.server.protocol.structured import blaming, check_volume
from slipstream.server.protocol.translated import check_choice, check_messages, check_tools
from slipstream.text.messages import MAX_MESSAGES
from slipstream.text.tools.schema import MAX_TOOLS, ToolChoice, ToolSet
from slipstream.wire.grammar import GrammarSpec

_Placed = tuple[str, dict[str, Any]]
"""A message in the shared shape, and the place that it came from."""

_NAMES = {"tool_calls": "tool_use", "tool_call_id": "tool_use_id", ".function.arguments": ".input"}
ROLES = ("user", "assistant", "system")
_CACHE = Ignored("cache_control", "equal prompt beginnings are always reused")
_CALLER = Ignored("caller", "calls come from the model alone")
_SERVER_TOOLS = "the server runs no tools of its own"
_TEXT_ONLY = "the model takes and returns text only"

MESSAGE = Shape({"role": (str,), "content": (str, list)}, ("role", "content"))
BLOCKS: dict[str, Shape] = {
    "text": Shape(
        {"type": (str,), "text": (str,)},
        ("text",),
        (_CACHE, Ignored("parsed_output", "a client's own reading of the text")),
        (Refused("citations", "citations are not part of the chat format", ([],)),),
    ),
    "thinking": Shape(
        {"type": (str,), "thinking": (str,)},
        ("thinking",),
        (Ignored("signature", "reasoning is not signed"),),
    ),
    "redacted_thinking": Shape({"type": (str,)}, (), (Ignored("data", "only the server that made it can read it"),)),
    "tool_use": Shape(
        {"type": (str,), "id": (str,), "name": (str,), "input": (dict,)},
        ("id", "name", "input"),
        (_CACHE, _CALLER),
        (Refused("toolset_name", _SERVER_TOOLS),),
    ),
    "tool_result": Shape(
        {"type": (str,), "tool_use_id": (str,), "content": (str, list)},
        ("tool_use_id",),
        (_CACHE, Ignored("is_error", "the chat format has no mark for it; the content says what failed")),
        (Refused("toolset_name", _SERVER_TOOLS),),
    ),
}
ALLOWED_BLOCKS: dict[str, tuple[str, ...]] = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "system": ("text",),
}
TOOL = Shape(
    {"type": (str,), "name": (str,), "description": (str,), "input_schema": (dict,), "strict": (bool,)},
    ("name", "input_schema"),
    (_CACHE, Ignored("eager_input_streaming", "arguments are always sent as they come")),
    (
        Refused("defer_loading", "every tool is shown to the model", (False,)),
        Refused("allowed_callers", _SERVER_TOOLS, (["direct"], [])),
        Refused("input_examples", "put examples into the description", ([],)),
    ),
)
CHOICE = Shape({"type": (str,), "name": (str,), "disable_parallel_tool_use": (bool,)}, ("type",))
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
THINKING = Shape(
    {"type": (str,)},
    ("type",),
    (Ignored("budget_tokens", "reasoning is bounded by max_tokens alone"),),
    (Refused("display", "reasoning is returned as it is", ("summarized",)),),
)
MODES = ("enabled", "disabled", "adaptive")
OUTPUT = Shape({"format": (dict,)}, (), (Ignored("effort", "the model has no degrees of it"),))
FORMAT = Shape({"type": (str,), "schema": (dict,)}, ("type", "schema"))


def ask_of(request: ConversationFields, *, is_to_answer: bool = True) -> ChatAsk:
    """Return the conversation of a request.

    Args:
        request: its accepted fields.
        is_to_answer: whether an answer follows; one cannot continue a last message of the assistant.

    Raises:
        RequestError: a shape that is not accepted; `param` says where.
        UnsupportedFeature: a shape that is understood and not served.
    """
    messages = _messages_of(request.messages)
    is_open = request.messages[-1]["role"] == "assistant"
    if is_open and is_to_answer:
        raise UnsupportedFeature(
            f"messages[{len(request.messages) - 1}].role='assistant': continuing the last message is not served; let "
            "the last message be the user's",
            param="messages",
            code="unsupported_feature",
        )
    tools = _tools_of(request.tools)
    choice, is_parallel = _choice_of(request.tool_choice, tools)
    return ChatAsk(
        messages=check_messages([*_system_of(request.system), *messages], _NAMES),
        tools=tools,
        tool_choice=choice,
        template_kwargs=_thinking_of(request.thinking),
        add_generation_prompt=not is_open,
        parallel_tool_calls=is_parallel,
    )


def grammar_of(output_config: object) -> GrammarSpec | None:
    """Return what the text must look like.

    Raises:
        RequestError: a shape that is not accepted.
        UnsupportedFeature: another format than a JSON schema.
    """
    if output_config is None:
        return None
    found = OUTPUT.read(output_config, "output_config")
    if "format" not in found:
        return None
    where = "output_config.format"
    kind = found["format"].get("type")
    if kind != "json_schema":
        raise refuse_kind(kind, ("json_schema",), where, "there is no other format")
    schema = FORMAT.read(found["format"], where)["schema"]
    with blaming("output_config"):
        check_volume(f"{where}.schema", schema)
        return GrammarSpec.json_schema(schema)


def _messages_of(messages: list[Any]) -> list[_Placed]:
    """Return messages in the shared shape."""
    if not messages:
        raise RequestError("messages is empty: give at least one message", param="messages")
    check_count(len(messages), MAX_MESSAGES, "messages", "messages")
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    num_blocks = sum(len(content) for content in contents if isinstance(content, list))
    check_count(num_blocks, MAX_MESSAGES, "blocks of content", "messages")
    return [made for place, message in enumerate(messages) for made in _message(message, f"messages[{place}]")]


def _message(value: object, where: str) -> list[_Placed]:
    message = MESSAGE.read(value, where)
    role, content = message["role"], message["content"]
    if role not in ROLES:
        raise RequestError(
            f"{where}.role={show(role)} is not allowed: one of {', '.join(ROLES)}", param=f"{where}.role"
        )
    if isinstance(content, str):
        return [(where, {"role": role, "content": content})]
    if not content:
        raise RequestError(f"{where}.content is an empty list: give a string or at least one block", param=where)
    blocks = _blocks(content, ALLOWED_BLOCKS[role], f"{where}.content")
    return [(where, _assistant(blocks))] if role == "assistant" else _turns(role, blocks, where)


def _blocks(content: list[Any], allowed: tuple[str, ...], where: str) -> list[dict[str, Any]]:
    blocks = []
    for place, value in enumerate(content):
        at = f"{where}[{place}]"
        if not isinstance(value, dict):
            raise RequestError(f"{at} is {kind_of(value)}: give a block, an object with type", param=at)
        kind = value.get("type")
        if not isinstance(kind, str) or kind not in allowed:
            raise refuse_kind(kind, allowed, at, _TEXT_ONLY if kind in ("image", "document") else "not in this message")
        block = BLOCKS[kind].read(value, at)
        if isinstance(block.get("content"), list):
            block["content"] = _text_of(block["content"], f"{at}.content")
        blocks.append(block)
    return blocks


def _text_of(content: list[Any], where: str) -> str:
    check_count(len(content), MAX_MESSAGES, "blocks of content", where)
    return "".join(block["text"] for block in _blocks(content, ("text",), where))


def _assistant(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(block["text"] for block in blocks if block["type"] == "text"),
    }
    thoughts = [block["thinking"] for block in blocks if block["type"] == "thinking"]
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["input"]},
            }
            for call in calls
        ]
    return message


def _turns(role: str, blocks: list[dict[str, Any]], where: str) -> list[_Placed]:
    """Return the results of tools and the texts between them, in order."""
    turns: list[_Placed] = []
    for place, block in enumerate(blocks):
        if block["type"] == "tool_result":
            result = {"role": "tool", "tool_call_id": block["tool_use_id"], "content": block.get("content", "")}
            turns.append((f"{where}.content[{place}]", result))
        elif turns and turns[-1][1]["role"] == role:
            turns[-1][1]["content"] += block["text"]
        else:
            turns.append((where, {"role": role, "content": block["text"]}))
    return turns


def _system_of(system: str | list[Any] | None) -> list[_Placed]:
    text = _text_of(system, "system") if isinstance(system, list) else system
    return [("system", {"role": "system", "content": text})] if text else []


def _tools_of(tools: list[Any]) -> ToolSet:
    check_count(len(tools), MAX_TOOLS, "tools", "tools")
    made = []
    for place, value in enumerate(tools):
        where = f"tools[{place}]"
        kind = value.get("type") if isinstance(value, dict) else None
        if kind not in (None, "custom"):
            raise refuse_kind(kind, ("custom",), where, _SERVER_TOOLS)
        tool = TOOL.read(value, where)
        function = {name: tool[name] for name in ("name", "description", "strict") if name in tool}
        made.append(function | {"parameters": tool["input_schema"]})
    return check_tools(made, {"].parameters": "].input_schema"})


def _choice_of(value: object, tools: ToolSet) -> tuple[ToolChoice, bool]:
    """Return the choice, and whether an answer may call more than once."""
    if value is None:
        return check_choice(None, tools), True
    choice = CHOICE.read(value, "tool_choice")
    is_parallel = not choice.get("disable_parallel_tool_use", False)
    kind, name = choice["type"], choice.get("name")
    if (kind == "tool") != (name is not None):
        raise RequestError(
            f"tool_choice.type={show(kind)} with name={show(name)}: give a name with type 'tool', and only there",
            param="tool_choice.name",
        )
    if kind == "tool":
        return check_choice({"type": "function", "function": {"name": name}}, tools), is_parallel
    if kind in CHOICES:
        return check_choice(CHOICES[kind], tools), is_parallel
    raise RequestError(
        f"tool_choice.type={show(kind)} is not allowed: one of auto, any, tool, none", param="tool_choice.type"
    )


def _thinking_of(value: object) -> dict[str, str]:
    if value is None:
        return {}
    mode = THINKING.read(value, "thinking")["type"]
    if mode not in MODES:
        raise refuse_kind(mode, MODES, "thinking", "the model has no such mode")
    return {"thinking_mode": mode}
