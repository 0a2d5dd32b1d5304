"""Types of accepted fields are exact."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from slipstream.server.protocol.requests import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from support.http_world import USER

BASES = {
    ChatRequest: {"messages": USER},
    CompletionRequest: {"prompt": "a"},
    TokenizeRequest: {},
    DetokenizeRequest: {"tokens": []},
}
WRONG = {
    float: ["0.5", True, [], {}],
    int: ["5", True, 5.5, 5.0, []],
    bool: [1, 0, "true", "false", []],
}


@pytest.mark.parametrize("model", BASES, ids=lambda model: model.__name__)
def test_numbers_and_switches_are_not_converted(model):
    checked = 0
    for name, field in model.model_fields.items():
        for kind, values in WRONG.items():
            if field.annotation not in (kind, kind | None):
                continue
            for value in values:
                checked += 1
                with pytest.raises(ValidationError):
                    model.model_validate(BASES[model] | {name: value})
    assert checked or model is DetokenizeRequest


def test_whole_numbers_are_numbers():
    assert ChatRequest.model_validate(BASES[ChatRequest] | {"temperature": 1}).temperature == 1.0


@pytest.mark.parametrize("model", BASES, ids=lambda model: model.__name__)
def test_unknown_fields_do_not_pass(model):
    model.model_validate(BASES[model])
    with pytest.raises(ValidationError):
        model.model_validate(BASES[model] | {"surprise": 1})


def test_defaults_change_nothing_about_the_draw():
    request = ChatRequest.model_validate(BASES[ChatRequest])
    drawn = (request.temperature, request.top_p, request.top_k, request.min_p, request.seed, request.stop)
    assert drawn == (1.0, 1.0, 0, 0.0, None, None)
    assert CompletionRequest.model_validate(BASES[CompletionRequest]).max_tokens == 16
    assert request.max_tokens is None
