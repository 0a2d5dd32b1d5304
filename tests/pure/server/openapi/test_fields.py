"""Schemas of bodies: what they allow and what they refuse is what the request parser allows and refuses."""

from __future__ import annotations

import json

import pytest

from slipstream.base.errors import RequestError
from slipstream.server.openapi.fields import EITHER, LIMITS, request_schema
from slipstream.server.protocol.endpoints import ENDPOINTS
from slipstream.server.protocol.parse import parse_fields
from slipstream.wire.sampling_params import SamplingParams
from support.json_schema import is_valid, validator

BODIES = [endpoint for endpoint in ENDPOINTS if endpoint.accepts is not None]
BY_PATH = pytest.mark.parametrize("endpoint", BODIES, ids=lambda endpoint: endpoint.path)


def valid_for(endpoint):
    return validator(*request_schema(endpoint))


@BY_PATH
def test_every_listed_field_is_there_and_no_other(endpoint):
    schema, _ = request_schema(endpoint)
    listed = {field.name for field in (*endpoint.ignored, *endpoint.refused)}
    assert set(schema["properties"]) == listed | set(endpoint.accepts.model_fields)
    assert schema["additionalProperties"] is False
    assert all("description" in part for part in schema["properties"].values())


@BY_PATH
def test_what_is_required_is_what_the_model_requires(endpoint):
    schema, _ = request_schema(endpoint)
    model = endpoint.accepts
    assert set(schema.get("required", [])) == {n for n, field in model.model_fields.items() if field.is_required()}


VALUES = [
    None, True, False, 0, 1, -1, 2, 0.5, 101, 10**19, "", "a", [], ["a"], [""], [1], [-1], [1.5], [[1]], {},
    {"a": 1}, {"1": 2}, {"include_usage": True}, {"include_usage": 1}, {"surprise": 1}, {"type": "text"}, ["a"] * 65,
    "none", "auto", "required",
    [{"role": "user", "content": "x"}], [{"role": "user"}], [{"type": "text", "text": "x"}],
]  # fmt: skip


def accepts(endpoint, body):
    try:
        parse_fields(endpoint, endpoint.accepts, body)
    except RequestError:
        return False
    return True


@BY_PATH
def test_schema_and_parser_agree_on_types(endpoint):
    """What the parser refuses for its type the schema refuses; limits may make the schema stricter, never laxer."""
    valid = valid_for(endpoint)
    required = {
        "messages": [{"role": "user", "content": "x"}],
        "prompt": "x",
        "tokens": [1],
        "input": "x",
        "model": "m",
        "max_tokens": 1,
    }
    schema, _ = request_schema(endpoint)
    base = {name: required[name] for name in (*schema.get("required", []), *EITHER.get(endpoint.path, ())[:1])}
    assert accepts(endpoint, base)
    assert valid(base)
    for name in {*schema["properties"], "surprise"} - set(EITHER.get(endpoint.path, ())):
        agreed = 0
        for value in VALUES:
            body = base | {name: value}
            if valid(body):
                assert accepts(endpoint, body), (name, value)
                agreed += 1
        assert agreed or name == "surprise", f"no value of {name} is allowed"
    assert not valid({"surprise": 1} | base)


EDGES = {
    "temperature": ([0, 100, 0.5], [-0.001, 100.5]),
    "top_p": ([1, 0.001], [0, 1.001]),
    "top_k": ([-1, 0, 5], [-2]),
    "min_p": ([0, 1], [-0.1, 1.1]),
    "seed": ([-(2**63), 2**63 - 1], [2**63, -(2**63) - 1]),
    "max_tokens": ([1, 2**63 - 1], [0, -1, 2**63]),
    "min_tokens": ([0, 1], [-1]),
    "stop": (["a", ["a"] * 64, []], ["", [""], ["a"] * 65]),
    "stop_token_ids": ([[], [0], [1] * 1024], [[-1], [1] * 1025]),
    "presence_penalty": ([-2, 2], [-2.1, 2.1]),
    "frequency_penalty": ([-2, 2], [-2.1, 2.1]),
    "repetition_penalty": ([0.1, 100], [0, 100.5]),
    "logit_bias": ([{}, {"5": 100}, {"0": -100}], [{"5": 101}, {"a": 1}, {"-1": 1}, {"1": "a"}]),
    "allowed_token_ids": ([[0], [1, 2]], [[], [-1]]),
    "bad_words": ([[], ["a"]], [[""], ["a"] * 257]),
    "n": ([1, 128], [0, 129]),
    "logprobs": ([0, 20], [-1, 21]),
    "prompt_logprobs": ([0, 20], [-1, 21]),
}
TYPES = {
    "logit_bias": {"type": "object"},
    "stop": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "bad_words": {"type": "array", "items": {"type": "string"}},
    "stop_token_ids": {"type": "array", "items": {"type": "integer"}},
    "allowed_token_ids": {"type": "array", "items": {"type": "integer"}},
}


@pytest.mark.parametrize("name", sorted(EDGES))
def test_limits_are_those_of_the_sampling_parameters(name):
    from slipstream.server.openapi.fields import _limited

    schema = _limited(TYPES.get(name, {"type": "number"}), LIMITS[name])
    allowed, refused = EDGES[name]
    others = {"max_tokens": 10} if name == "min_tokens" else {}
    for value in allowed:
        SamplingParams(**{name: value}, **others)
        assert is_valid(value, schema), value
    for value in refused:
        with pytest.raises(RequestError):
            SamplingParams(**{name: value}, **others)
        assert not is_valid(value, schema), value


def test_every_limit_has_edges_that_are_tried():
    """Some fields are the same parameter under another name; guided_choice is refused by the grammar compiler."""
    same = {
        "top_logprobs": "logprobs",
        "max_completion_tokens": "max_tokens",
        "max_output_tokens": "max_tokens",
        "stop_sequences": "stop",
    }
    assert set(LIMITS) == set(EDGES) | set(same) | {"guided_choice"}
    for name, other in same.items():
        assert LIMITS[name] == LIMITS[other], name


def test_null_and_ignored_and_refused_values():
    endpoint = next(e for e in BODIES if e.path == "/v1/chat/completions")
    valid = valid_for(endpoint)
    base = {"messages": [{"role": "user", "content": "x"}]}
    assert valid(base | {"user": {"anything": 1}})
    assert valid(base | {"temperature": None, "audio": None})
    assert not valid({"messages": None})
    assert not valid(base | {"audio": {}})
    assert valid(base | {"verbosity": "medium"})
    assert not valid(base | {"verbosity": "high"})


def test_exactly_one_of_two_fields_is_given():
    valid = valid_for(next(e for e in BODIES if e.path == "/tokenize"))
    messages = [{"role": "user", "content": "x"}]
    for body in ({"prompt": "x"}, {"messages": messages}, {"prompt": "x", "messages": None}):
        assert valid(body)
    for body in ({}, {"prompt": None}, {"prompt": "x", "messages": messages}, {"prompt": None, "messages": None}):
        assert not valid(body)


def test_schemas_are_json():
    for endpoint in BODIES:
        schema, components = request_schema(endpoint)
        assert json.loads(json.dumps([schema, components])) == [schema, components]
