"""The tables are complete, disjoint, and mean what they say."""

from __future__ import annotations

import pytest

from slipstream.server.protocol.endpoints import ENDPOINTS
from slipstream.server.protocol.fields import IGNORED, REFUSED, Refused, is_neutral

GENERATING = [endpoint for endpoint in ENDPOINTS if endpoint.ignored]

# What clients in the wild are known to send, beyond the model and the prompt.
SEEN = {
    "ignore_eos", "min_tokens", "max_completion_tokens", "stream_options", "seed", "stop", "echo", "logprobs", "tools",
    "parallel_tool_calls", "store", "n", "best_of", "temperature", "top_p", "top_k", "min_p", "frequency_penalty",
    "presence_penalty", "repetition_penalty", "logit_bias", "user", "response_format", "tool_choice",
    "prompt_cache_key", "safety_identifier", "service_tier", "metadata", "reasoning_effort", "top_logprobs",
    "skip_special_tokens", "guided_json", "structured_outputs", "chat_template_kwargs", "add_generation_prompt",
    "modalities", "audio", "stop_token_ids", "include_stop_str_in_output", "suffix", "prompt_logprobs", "chat_template",
}  # fmt: skip


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_no_field_is_in_two_tables(endpoint):
    accepted = list(endpoint.accepts.model_fields) if endpoint.accepts else []
    names = [*accepted, *(f.name for f in endpoint.ignored), *(f.name for f in endpoint.refused)]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_every_field_has_a_reason():
    for endpoint in ENDPOINTS:
        for field in (*endpoint.ignored, *endpoint.refused):
            assert len(field.reason) > 10, field.name


def test_fields_of_clients_in_the_wild_are_known():
    known = set()
    for endpoint in GENERATING:
        known |= set(endpoint.accepts.model_fields)
        known |= {field.name for field in (*endpoint.ignored, *endpoint.refused)}
    assert SEEN - known == set()
    assert len(IGNORED) + len(REFUSED) > 15


@pytest.mark.parametrize(
    ("value", "neutral", "is_same"),
    [
        (None, (), True),
        (1, (1,), True),
        (1.0, (1,), True),
        (True, (1,), False),
        (1, (True,), False),
        (False, (False,), True),
        (0, (False,), False),
        ([], ([],), True),
        ([1], ([],), False),
        ({"type": "text"}, ({"type": "text"},), True),
        ({"type": "json_object"}, ({"type": "text"},), False),
        ("none", ("none",), True),
        ("auto", ("none",), False),
    ],
)
def test_neutral_values(value, neutral, is_same):
    assert is_neutral(value, Refused("x", "because it is so", neutral)) is is_same
