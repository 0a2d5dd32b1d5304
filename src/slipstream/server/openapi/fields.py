"""Request models with their tables of ignored and refused fields as JSON Schema. Answers: see structs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.server.openapi.chat_values import CHAT_VALUES, COMPLETION_VALUES, TOKENIZE_VALUES
from slipstream.server.openapi.messages_values import MESSAGES_VALUES
from slipstream.server.openapi.responses_values import RESPONSES_VALUES
from slipstream.server.openapi.structs import REF
from slipstream.server.openapi.values import Schema, nullable
from slipstream.server.protocol.endpoints import Endpoint
from slipstream.server.protocol.requests import MAX_ALLOWED_TOKEN_IDS, MAX_CHOICES, MAX_LOGIT_BIASES
from slipstream.wire.sampling_params import (
    MAX_BAD_WORDS,
    MAX_LOGIT_BIAS,
    MAX_LOGPROBS,
    MAX_N,
    MAX_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    MAX_TEMPERATURE,
)

_NULL: Schema = {"type": "null"}
_MAX_INT64 = 2**63 - 1
_TEXTS: Schema = {"minLength": 1, "items": {"minLength": 1}}
_PENALTY: Schema = {"minimum": -MAX_PENALTY, "maximum": MAX_PENALTY}

LIMITS: Mapping[str, Schema] = {
    "temperature": {"minimum": 0, "maximum": MAX_TEMPERATURE},
    "top_p": {"exclusiveMinimum": 0, "maximum": 1},
    "top_k": {"minimum": -1},
    "min_p": {"minimum": 0, "maximum": 1},
    "seed": {"minimum": -_MAX_INT64 - 1, "maximum": _MAX_INT64},
    "max_tokens": {"minimum": 1, "maximum": _MAX_INT64},
    "max_output_tokens": {"minimum": 1, "maximum": _MAX_INT64},
    "max_completion_tokens": {"minimum": 1, "maximum": _MAX_INT64},
    "min_tokens": {"minimum": 0},
    "stop": {**_TEXTS, "maxItems": MAX_STOP_STRINGS},
    "stop_sequences": {**_TEXTS, "maxItems": MAX_STOP_STRINGS},
    "stop_token_ids": {"items": {"minimum": 0}, "maxItems": MAX_STOP_TOKEN_IDS},
    "presence_penalty": _PENALTY,
    "frequency_penalty": _PENALTY,
    "repetition_penalty": {"exclusiveMinimum": 0, "maximum": MAX_REPETITION_PENALTY},
    "logit_bias": {
        "maxProperties": MAX_LOGIT_BIASES,
        "propertyNames": {"pattern": "^[0-9]+$"},
        "additionalProperties": {"type": "number", "minimum": -MAX_LOGIT_BIAS, "maximum": MAX_LOGIT_BIAS},
    },
    "allowed_token_ids": {"items": {"minimum": 0}, "minItems": 1, "maxItems": MAX_ALLOWED_TOKEN_IDS},
    "bad_words": {**_TEXTS, "maxItems": MAX_BAD_WORDS},
    "n": {"minimum": 1, "maximum": MAX_N},
    "logprobs": {"minimum": 0, "maximum": MAX_LOGPROBS},
    "top_logprobs": {"minimum": 0, "maximum": MAX_LOGPROBS},
    "guided_choice": {"minItems": 1, "maxItems": MAX_CHOICES},
    "prompt_logprobs": {"minimum": 0, "maximum": MAX_LOGPROBS},
}
"""What a value must satisfy besides its type, by name of the field; each is checked where requests are.

A keyword says nothing about values of another type, so null stays allowed.
"""


VALUES: Mapping[str, Mapping[str, Schema]] = {
    "/v1/chat/completions": CHAT_VALUES,
    "/v1/completions": COMPLETION_VALUES,
    "/v1/messages": MESSAGES_VALUES,
    "/v1/messages/count_tokens": MESSAGES_VALUES,
    "/v1/responses": RESPONSES_VALUES,
    "/tokenize": TOKENIZE_VALUES,
}
"""Shapes of fields whose values have a parser of their own, by path and name."""


EITHER: Mapping[str, tuple[str, str]] = {"/tokenize": ("prompt", "messages")}
"""Two fields of which a request has exactly one, by path."""


def request_schema(endpoint: Endpoint) -> tuple[Schema, dict[str, Schema]]:
    """Return the schema of an endpoint's body, and the components that it refers to.

    Accepted fields come first, then the ignored ones, which take anything, then the refused ones with the values that
    ask for nothing. Null counts as absent, so every field takes it that is not required.

    Args:
        endpoint: with a request model.
    """
    assert endpoint.accepts is not None
    whole = endpoint.accepts.model_json_schema(ref_template=REF.format("{model}"))
    components = {name: _tidy(part) for name, part in whole.pop("$defs", {}).items()}
    schema = _tidy(whole)
    required, values = schema.get("required", []), VALUES.get(endpoint.path, {})
    for name, given in schema["properties"].items():
        refined = _refine(given, LIMITS.get(name, {}), values.get(name))
        schema["properties"][name] = refined if name in required else nullable(refined)
    for field in endpoint.ignored:
        schema["properties"].setdefault(field.name, {"description": f"ignored: {field.reason}"})
    for field in endpoint.refused:
        asks_nothing = {"enum": [*field.neutral, None], "description": f"not served: {field.reason}"}
        schema["properties"].setdefault(field.name, asks_nothing)
    if endpoint.path in EITHER:
        one, other = EITHER[endpoint.path]
        schema["oneOf"] = [_has(one, other), _has(other, one)]
    return schema, components


def _has(name: str, without: str) -> Schema:
    return {"required": [name], "properties": {name: {"not": _NULL}, without: _NULL}}


def _refine(schema: Schema, limits: Schema, value: Schema | None) -> Schema:
    """Return the schema of an accepted field with its limits, or with the shape that its own parser reads."""
    notes = {key: schema[key] for key in ("default", "description") if schema.get(key) is not None}
    kept = {key: part for key, part in schema.items() if key not in ("default", "description")}
    return {**(_limited(kept, limits) if value is None else value), **notes}


def _limited(schema: Schema, limits: Schema) -> Schema:
    """Return a schema with limits in each branch of a union and inside lists; its own limits win."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_limited(branch, limits) for branch in schema["anyOf"]]}
    allowed = _KEYWORDS.get(schema.get("type", ""), ())
    merged = {key: value for key, value in limits.items() if key in allowed} | schema
    if "items" in schema and "items" in limits:
        merged["items"] = _limited(schema["items"], limits["items"])
    if schema.get("type") == "object" and "additionalProperties" in limits:
        merged["additionalProperties"] = limits["additionalProperties"]
    return merged


_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("minItems", "maxItems"),
    "object": ("propertyNames", "maxProperties"),
}


def _tidy(schema: Any) -> Any:
    """Return a schema without the titles that repeat a name."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _tidy(part) for name, part in value.items()} if key == "properties" else _tidy(value)
        for key, value in schema.items()
        if key != "title" or not isinstance(value, str)
    }
