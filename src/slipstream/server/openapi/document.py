"""The OpenAPI 3.1 document: every endpoint of the table, its body, its answers, its errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from slipstream.base.version import VERSION
from slipstream.server.auth import is_open
from slipstream.server.openapi.fields import request_schema
from slipstream.server.openapi.structs import REF, schema_of
from slipstream.server.openapi.values import Schema
from slipstream.server.protocol.endpoints import Endpoint

OPENAPI_VERSION = "3.1.0"
STREAM = "text/event-stream"
DONE = "[DONE]"
_JSON = "application/json"
_BEARER, _HEADER = "bearer", "header"
_ABOUT = (
    "Bodies are JSON. null counts as absent. A field that is described as ignored takes any value and changes nothing; "
    "one that is described as not served takes only the values that ask for nothing; any other field is refused. "
    "An unknown route is answered with 404, in the shape of the other errors."
)
_ERRORS = {
    400: "the request is not one that is served; the message names the field, what is allowed and what to do",
    401: "the API key is missing or wrong",
    404: "the model is not served here",
    405: "another method is allowed on this path",
    413: "the body is too long",
    500: "the server failed; its log says more",
    503: "the server is loading, draining, full or about to end: try again after Retry-After seconds",
}


def build_document(endpoints: Sequence[Endpoint], *, needs_api_key: bool = False) -> dict[str, Any]:
    """Return the document.

    Args:
        endpoints: what is served.
        needs_api_key: whether the server asks for a key.

    Raises:
        TypeError: two different schemas would have the same name, or a type has none.
    """
    components: dict[str, Schema] = {}
    paths: dict[str, Schema] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, components, needs_api_key=needs_api_key)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    document: dict[str, Any] = {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "Slipstream", "version": VERSION, "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": {name: _public(components[name]) for name in sorted(components)}},
    }
    if needs_api_key:
        document["components"]["securitySchemes"] = {
            _BEARER: {"type": "http", "scheme": "bearer"},
            _HEADER: {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return document


def _operation(endpoint: Endpoint, components: dict[str, Schema], *, needs_api_key: bool) -> Schema:
    has_key = needs_api_key and not is_open(endpoint.path)
    operation: Schema = {
        "operationId": _name_of(endpoint),
        "summary": endpoint.purpose,
        "responses": _responses(endpoint, components, has_key=has_key),
    }
    names = re.findall(r"{(\w+)}", endpoint.path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in names
        ]
    if endpoint.accepts is not None:
        schema, parts = request_schema(endpoint)
        _add(components, {**parts, endpoint.accepts.__name__: schema})
        body = {"schema": {"$ref": REF.format(endpoint.accepts.__name__)}}
        operation["requestBody"] = {"required": True, "content": {_JSON: body}}
    if has_key:
        operation["security"] = [{_BEARER: []}, {_HEADER: []}]
    return operation


def _responses(endpoint: Endpoint, components: dict[str, Schema], *, has_key: bool) -> dict[str, Schema]:
    answer = {"type": "string"} if endpoint.answers is None else schema_of(endpoint.answers, components)
    content: Schema = {endpoint.media_type: {"schema": answer}}
    if endpoint.events is not None:
        chunk = {"anyOf": [schema_of(endpoint.events, components), schema_of(endpoint.error, components)]}
        content[STREAM] = {"schema": _event(chunk)}
    responses: dict[str, Schema] = {"200": {"description": endpoint.purpose, "content": content}}
    for status in _statuses(endpoint, has_key=has_key):
        hint = endpoint.unready if status == 503 and endpoint.unready is not None else endpoint.error
        content = {_JSON: {"schema": schema_of(hint, components)}}
        responses[str(status)] = {"description": _ERRORS[status], "content": content}
        if status == 503 and endpoint.accepts is not None:
            responses["503"]["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 0}}}
    return responses


def _event(data: Schema) -> Schema:
    """Return the schema of one event of a stream."""
    chunk = {"type": "string", "contentMediaType": _JSON, "contentSchema": data}
    return {
        "type": "object",
        "description": "with stream: one event; an error in the middle is an event too, and ends the stream",
        "properties": {"data": {"anyOf": [{"const": DONE}, chunk]}, "event": {"type": "string"}},
        "required": ["data"],
    }


def _statuses(endpoint: Endpoint, *, has_key: bool) -> list[int]:
    found = {405, 500, 503}
    if endpoint.accepts is not None:
        found |= {400, 404, 413}
    if "{" in endpoint.path:
        found.add(404)
    if has_key:
        found.add(401)
    return sorted(found)


def _name_of(endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", endpoint.path)
    return "_".join([endpoint.method.lower(), *words])


def _add(components: dict[str, Schema], parts: dict[str, Schema]) -> None:
    for name, schema in parts.items():
        if components.setdefault(name, schema) != schema:
            raise TypeError(f"two different schemas are called {name}: rename one of the classes")


def _public(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "x-struct"}
