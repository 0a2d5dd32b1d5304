"""Types of accepted fields are exact."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from slipstream.server.protocol.requests import CompletionRequest, DetokenizeRequest, TokenizeRequest
from slipstream.server.protocol.structured import grammar_of
from slipstream.wire.sampling_params import SamplingParams
from support.wrong_types import check_exact_types

BASES = {CompletionRequest: {"prompt": "a"}, TokenizeRequest: {}, DetokenizeRequest: {"tokens": []}}


@pytest.mark.parametrize("model", BASES, ids=lambda model: model.__name__)
def test_numbers_and_switches_are_not_converted(model):
    assert check_exact_types(model, BASES[model]) or model is DetokenizeRequest


def test_whole_numbers_are_numbers():
    assert CompletionRequest.model_validate({"prompt": "a", "temperature": 1}).temperature == 1.0


@pytest.mark.parametrize("model", BASES, ids=lambda model: model.__name__)
def test_unknown_fields_do_not_pass(model):
    model.model_validate(BASES[model])
    with pytest.raises(ValidationError):
        model.model_validate(BASES[model] | {"surprise": 1})


def test_defaults_are_those_of_the_sampling_parameters():
    request = CompletionRequest.model_validate({"prompt": "a"})
    shared = set(SamplingParams.__struct_fields__) & set(CompletionRequest.model_fields)
    assert len(shared) >= 20
    plain = SamplingParams()
    for name in shared - {"stop", "stop_token_ids", "logit_bias", "bad_words"}:
        assert getattr(request, name) == getattr(plain, name), name
    assert (request.stop, request.stop_token_ids, request.logit_bias, request.bad_words) == (None, [], {}, [])
    assert grammar_of(request) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logit_bias", {"5": "1"}),
        ("logit_bias", {"5": True}),
        ("logit_bias", [[5, 1.0]]),
        ("allowed_token_ids", [1, "2"]),
        ("allowed_token_ids", [1.0]),
        ("allowed_token_ids", "12"),
        ("bad_words", "word"),
        ("bad_words", ["a", 1]),
        ("guided_choice", ["a", 1]),
        ("guided_regex", 5),
        ("guided_json", 5),
        ("response_format", "json_object"),
        ("structured_outputs", ["json"]),
    ],
)
def test_lists_and_objects_are_not_converted(name, value):
    with pytest.raises(ValidationError):
        CompletionRequest.model_validate({"prompt": "a", name: value})
