"""Values of /v1/responses that no request model describes, as JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.server.openapi.chat_values import FUNCTION_NAME, PARAMETERS
from slipstream.server.openapi.values import OBJECT, TEXT, Schema, list_of, nullable, one_of, shape_schema
from slipstream.server.protocol.response_api import input as parser
from slipstream.text.messages import MAX_MESSAGES
from slipstream.text.tools.schema import MAX_TOOLS

_PARTS: Schema = {
    "anyOf": [TEXT, list_of(shape_schema(parser.PART, {"type": one_of(*parser.TEXT_PARTS)}, "type"), min_items=1)]
}
_THOUGHT = shape_schema(parser.THOUGHT, {"type": {"const": "reasoning_text"}}, "type")
_ITEMS = {
    kind: shape_schema(shape, {"type": {"const": kind}, **parts}, *needs)
    for kind, shape, parts, needs in (
        ("message", parser.ITEMS["message"], {"role": one_of(*parser.ROLES), "content": _PARTS}, ()),
        ("reasoning", parser.ITEMS["reasoning"], {"content": list_of(_THOUGHT)}, ("type",)),
        ("function_call", parser.ITEMS["function_call"], {}, ("type",)),
        ("function_call_output", parser.ITEMS["function_call_output"], {"output": _PARTS}, ("type",)),
    )
}
_FORMATS = [
    shape_schema(parser.FORMATS["text"], {"type": {"const": "text"}}),
    shape_schema(parser.FORMATS["json_object"], {"type": {"const": "json_object"}}, "type"),
    shape_schema(parser.FORMATS["json_schema"], {"type": {"const": "json_schema"}, "schema": OBJECT}, "type"),
]
_TOOL = shape_schema(
    parser.TOOL,
    {"type": {"const": "function"}, "name": FUNCTION_NAME, "parameters": PARAMETERS},
    "type",
)

RESPONSES_VALUES: Mapping[str, Schema] = {
    "input": {
        "anyOf": [TEXT, list_of({"anyOf": list(_ITEMS.values())}, min_items=1, max_items=MAX_MESSAGES)],
    },
    "tools": list_of(_TOOL, max_items=MAX_TOOLS),
    "tool_choice": {
        "anyOf": [
            one_of("none", "auto", "required"),
            shape_schema(parser.CHOICE, {"type": {"const": "function"}}, "type"),
        ]
    },
    "text": shape_schema(parser.TEXT, {"format": {"anyOf": _FORMATS}}),
    "reasoning": shape_schema(parser.REASONING, {"effort": nullable(one_of(*parser.EFFORTS))}),
    "include": list_of({"const": parser.INCLUDABLE}),
}
