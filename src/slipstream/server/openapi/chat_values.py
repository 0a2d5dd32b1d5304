"""Values of /v1/chat/completions, /v1/completions and /tokenize that no request model describes, as JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.server.openapi.values import BOOLEAN, OBJECT, SOME_TEXT, TEXT, Schema, closed, list_of, one_of
from slipstream.server.protocol.requests import MAX_CHOICES
from slipstream.text.messages import EMPTY_FIELDS, MAX_MESSAGES, ROLES, TEXT_FIELDS
from slipstream.text.tools.schema import MAX_TOOLS
from slipstream.text.tools.syntax import MAX_TAG_CHARS

_TOKEN_IDS = list_of({"type": "integer", "minimum": 0}, min_items=1)
_TEXT_PART = closed({"type": {"const": "text"}, "text": TEXT}, "type", "text")
_CONTENT: Schema = {"anyOf": [TEXT, list_of(_TEXT_PART, min_items=1)]}
_NOTHING: Schema = {"enum": [None, "", []]}
_ARGUMENTS: Schema = {"anyOf": [TEXT, OBJECT], "description": "JSON text of an object, or the object"}
_CALL = closed(
    {
        "id": TEXT,
        "type": {"const": "function"},
        "function": closed({"name": TEXT, "arguments": _ARGUMENTS}, "name"),
        "index": {"description": "ignored: the order of the list is what counts"},
    },
    "function",
)


def _message(roles: list[str], own: Mapping[str, Schema], *required: str) -> Schema:
    texts = dict.fromkeys(TEXT_FIELDS, TEXT)
    empty = {name: {**_NOTHING, "description": f"not served: {reason}"} for name, reason in EMPTY_FIELDS.items()}
    calls = {"tool_calls": _NOTHING, "tool_call_id": _NOTHING}
    return closed({"role": {"enum": roles}, "content": _CONTENT, **texts, **empty, **calls, **own}, "role", *required)


MESSAGES = list_of(
    {
        "anyOf": [
            _message([role for role in ROLES if role != "tool"], {"tool_calls": {"enum": [None, []]}}, "content"),
            _message(["assistant"], {"tool_calls": list_of(_CALL, min_items=1)}, "tool_calls"),
            _message(["tool"], {"tool_call_id": TEXT}, "content"),
        ]
    },
    min_items=1,
    max_items=MAX_MESSAGES,
)
PROMPT: Schema = {
    "anyOf": [
        SOME_TEXT,
        _TOKEN_IDS,
        list_of(SOME_TEXT, min_items=1),
        list_of(_TOKEN_IDS, min_items=1),
    ]
}
ELEMENT_NAME = rf"^[^<>/\r\n][^<>\r\n]{{0,{MAX_TAG_CHARS - 1}}}$"
"""What the model can write a parameter's name as; `invoke name=…`, which would read as a call, is refused besides."""

PARAMETERS: Schema = {
    "type": "object",
    "description": "JSON Schema of an object",
    "properties": {
        "type": {"const": "object"},
        "properties": {"type": "object", "propertyNames": {"pattern": ELEMENT_NAME}},
    },
}
FUNCTION_NAME: Schema = {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"}
_FUNCTION = closed({"name": FUNCTION_NAME, "description": TEXT, "parameters": PARAMETERS, "strict": BOOLEAN}, "name")
TOOLS = list_of(closed({"type": {"const": "function"}, "function": _FUNCTION}, "type", "function"), max_items=MAX_TOOLS)
TOOL_CHOICE: Schema = {
    "anyOf": [
        one_of("none", "auto", "required"),
        closed({"type": {"const": "function"}, "function": closed({"name": TEXT}, "name")}, "type", "function"),
    ]
}
JSON_SCHEMA: Schema = {"type": ["object", "boolean"], "description": "a JSON schema"}
_FORMAT = closed({"name": SOME_TEXT, "description": TEXT, "schema": JSON_SCHEMA, "strict": BOOLEAN}, "name", "schema")
RESPONSE_FORMAT: Schema = {
    "anyOf": [
        closed({"type": one_of("text", "json_object"), "json_schema": {"type": "null"}}, "type"),
        closed({"type": {"const": "json_schema"}, "json_schema": _FORMAT}, "type", "json_schema"),
        {"type": "object", "properties": {"type": {"const": "structural_tag"}}, "required": ["type"]},
    ]
}
STRUCTURED_OUTPUTS: Schema = {
    **closed(
        {
            "json": {"type": ["object", "boolean", "string"], "description": "a JSON schema, or its JSON text"},
            "regex": TEXT,
            "choice": list_of(TEXT, min_items=1, max_items=MAX_CHOICES),
            "grammar": TEXT,
            "json_object": BOOLEAN,
            "structural_tag": {"type": ["object", "string"]},
        }
    ),
    "maxProperties": 1,
}
_SHARED: Mapping[str, Schema] = {"response_format": RESPONSE_FORMAT, "structured_outputs": STRUCTURED_OUTPUTS}
COMPLETION_VALUES: Mapping[str, Schema] = {
    **_SHARED,
    "prompt": PROMPT,
    "max_tokens": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
}
CHAT_VALUES: Mapping[str, Schema] = {
    **_SHARED,
    "messages": MESSAGES,
    "tools": TOOLS,
    "tool_choice": TOOL_CHOICE,
}
TOKENIZE_VALUES: Mapping[str, Schema] = {"messages": MESSAGES, "tools": TOOLS}
