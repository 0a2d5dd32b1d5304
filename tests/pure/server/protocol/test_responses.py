"""What is sent can be read by the types of the openai package."""

from __future__ import annotations

import msgspec
from openai.types import Completion as OpenAICompletion

from slipstream.server.protocol.responses import (
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionLogprobs,
    PromptLogprob,
    RunningUsage,
)
from support.usage import USAGE

COMMON = {"id": "x", "created": 1, "model": "m"}
LOGPROBS = CompletionLogprobs(tokens=["a"], token_logprobs=[-1.0], text_offset=[0], top_logprobs=[{"a": -1.0}])
CHOICE = CompletionChoice(index=0, text="a", finish_reason="length", stop_reason=None, logprobs=LOGPROBS)


def test_a_completion():
    sent = msgspec.json.encode(Completion(choices=[CHOICE], usage=USAGE, **COMMON))
    read = OpenAICompletion.model_validate_json(sent, strict=True)
    assert read.choices[0].logprobs.tokens == ["a"]
    assert read.choices[0].logprobs.top_logprobs == [{"a": -1.0}]


def test_what_was_not_asked_for_is_absent():
    names = {"prompt_logprobs", "prompt_token_ids", "token_ids"}
    assert not names & set(msgspec.to_builtins(CHOICE))
    whole = msgspec.structs.replace(CHOICE, prompt_logprobs=[None], prompt_token_ids=[1], token_ids=[])
    assert names <= set(msgspec.to_builtins(whole))
    assert msgspec.to_builtins(PromptLogprob(logprob=-1.0, decoded_token="a")) == {
        "logprob": -1.0,
        "decoded_token": "a",
    }


def test_usage_in_chunks():
    """A chunk has three counts; the last one has the whole usage."""
    plain = msgspec.to_builtins(CompletionChunk(choices=[CHOICE], **COMMON))
    assert "usage" not in plain
    running = RunningUsage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
    sent = msgspec.json.encode(CompletionChunk(choices=[CHOICE], usage=running, **COMMON))
    assert OpenAICompletion.model_validate_json(sent).usage.total_tokens == 3
    last = msgspec.json.decode(msgspec.json.encode(CompletionChunk(choices=[], usage=USAGE, **COMMON)))
    assert last["usage"] == msgspec.to_builtins(USAGE)
    assert set(msgspec.to_builtins(running)) < set(last["usage"])
