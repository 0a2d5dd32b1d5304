"""The document covers what is served, and nothing else."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from slipstream.server.auth import is_open
from slipstream.server.openapi.document import build_document
from slipstream.server.protocol.endpoints import ENDPOINTS, Endpoint
from slipstream.server.protocol.responses import ErrorBody

DOCUMENT = build_document(ENDPOINTS)


def operations(document):
    return {(method.upper(), path): part for path, item in document["paths"].items() for method, part in item.items()}


def references(part):
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(part, list):
        for item in part:
            yield from references(item)


def test_every_endpoint_is_an_operation():
    assert set(operations(DOCUMENT)) == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    assert DOCUMENT["openapi"].startswith("3.1")
    names = [part["operationId"] for part in operations(DOCUMENT).values()]
    assert len(set(names)) == len(names)


def test_every_reference_leads_to_a_component_and_every_component_is_used():
    named = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert set(references(DOCUMENT)) == named
    assert "x-struct" not in str(DOCUMENT)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_an_endpoint_says_what_it_answers(endpoint):
    """An endpoint that is added to the table must name the struct of its answer, and of its events if it streams."""
    operation = operations(DOCUMENT)[endpoint.method, endpoint.path]
    content = operation["responses"]["200"]["content"]
    assert (endpoint.answers is not None) == (endpoint.media_type == "application/json"), "set Endpoint.answers"
    has_stream = endpoint.accepts is not None and "stream" in endpoint.accepts.model_fields
    assert ("text/event-stream" in content) == has_stream == (endpoint.events is not None), "set Endpoint.events"
    assert ("requestBody" in operation) == (endpoint.accepts is not None)
    if has_stream:
        data = content["text/event-stream"]["schema"]["properties"]["data"]
        assert DOCUMENT["components"]["schemas"][endpoint.error.__name__]
        assert len(data["anyOf"][1]["contentSchema"]["anyOf"]) == 2


def test_errors_are_listed_where_they_can_occur():
    found = operations(DOCUMENT)
    chat = found["POST", "/v1/chat/completions"]["responses"]
    assert set(chat) == {"200", "400", "404", "405", "413", "500", "503"}
    assert chat["400"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ErrorBody"}
    assert chat["503"]["headers"]["Retry-After"]
    assert set(chat["503"]["content"]) == {"application/json"}
    assert set(found["GET", "/v1/models/{model}"]["responses"]) == {"200", "404", "405", "500", "503"}
    health = found["GET", "/health"]["responses"]
    assert health["503"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Health"}


def test_a_key_is_asked_for_where_the_server_asks_for_it():
    document = build_document(ENDPOINTS, needs_api_key=True)
    assert document["components"]["securitySchemes"]
    for (_, path), operation in operations(document).items():
        assert ("security" in operation) == ("401" in operation["responses"]) == (not is_open(path))
    assert "securitySchemes" not in DOCUMENT["components"]
    assert not any("401" in operation["responses"] for operation in operations(DOCUMENT).values())


def test_two_models_of_one_name_are_refused():
    one = type("Asked", (BaseModel,), {"__annotations__": {"a": int}})
    other = type("Asked", (BaseModel,), {"__annotations__": {"b": int}})
    endpoints = [Endpoint("POST", f"/{n}", "x", model, answers=ErrorBody) for n, model in enumerate((one, other))]
    with pytest.raises(TypeError, match="Asked"):
        build_document(endpoints)
