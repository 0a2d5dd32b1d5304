"""The fields of a conversation have exact types, and the limit of its answer has two spellings."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from slipstream.base.errors import RequestError
from slipstream.server.protocol.chat_requests import ChatRequest, chat_max_tokens
from support.http_world import USER
from support.wrong_types import check_exact_types

BASE = {"messages": USER}


def chat(**fields) -> ChatRequest:
    return ChatRequest.model_validate(BASE | fields)


def test_numbers_and_switches_are_not_converted():
    assert check_exact_types(ChatRequest, BASE)


def test_whole_numbers_are_numbers():
    assert chat(temperature=1).temperature == 1.0


def test_unknown_fields_do_not_pass():
    with pytest.raises(ValidationError):
        chat(surprise=1)


def test_defaults_change_nothing_about_the_draw():
    request = chat()
    drawn = (request.temperature, request.top_p, request.top_k, request.min_p, request.seed, request.stop)
    assert drawn == (1.0, 1.0, 0, 0.0, None, None)
    assert request.max_tokens is None


def test_max_tokens_has_two_spellings():
    assert chat_max_tokens(chat()) is None
    assert chat_max_tokens(chat(max_tokens=4)) == chat_max_tokens(chat(max_completion_tokens=4)) == 4
    with pytest.raises(RequestError, match="give one"):
        chat_max_tokens(chat(max_tokens=4, max_completion_tokens=5))
