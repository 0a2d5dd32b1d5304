"""Values of /v1/messages and its count_tokens that no request model describes, as JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.server.openapi.chat_values import FUNCTION_NAME, PARAMETERS
from slipstream.server.openapi.values import OBJECT, TEXT, Schema, list_of, one_of, shape_schema
from slipstream.server.protocol.messages import input as parser
from slipstream.text.messages import MAX_MESSAGES
from slipstream.text.tools.schema import MAX_TOOLS


def _block(kind: str) -> Schema:
    parts: dict[str, Schema] = {"type": {"const": kind}}
    if kind == "tool_result":
        parts["content"] = {"anyOf": [TEXT, list_of(_block("text"))]}
    return shape_schema(parser.BLOCKS[kind], parts, "type")


def _message(role: str) -> Schema:
    blocks: Schema = {"anyOf": [_block(kind) for kind in parser.ALLOWED_BLOCKS[role]]}
    content: Schema = {"anyOf": [TEXT, list_of(blocks, min_items=1)]}
    return shape_schema(parser.MESSAGE, {"role": {"const": role}, "content": content})


_NAMED = shape_schema(parser.CHOICE, {"type": {"const": "tool"}, "name": TEXT}, "name")
_UNNAMED = shape_schema(parser.CHOICE, {"type": one_of(*parser.CHOICES), "name": {"type": "null"}})
_FORMAT = shape_schema(parser.FORMAT, {"type": {"const": "json_schema"}, "schema": OBJECT})
_TOOL = shape_schema(parser.TOOL, {"type": {"const": "custom"}, "name": FUNCTION_NAME, "input_schema": PARAMETERS})

MESSAGES_VALUES: Mapping[str, Schema] = {
    "messages": list_of({"anyOf": [_message(role) for role in parser.ROLES]}, min_items=1, max_items=MAX_MESSAGES),
    "system": {"anyOf": [TEXT, list_of(_block("text"))]},
    "tools": list_of(_TOOL, max_items=MAX_TOOLS),
    "tool_choice": {"anyOf": [_UNNAMED, _NAMED]},
    "thinking": shape_schema(parser.THINKING, {"type": one_of(*parser.MODES)}),
    "output_config": shape_schema(parser.OUTPUT, {"format": _FORMAT}),
}
