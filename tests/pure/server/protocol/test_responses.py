"""What is sent can be read by the types of the openai package."""

from __future__ import annotations

import msgspec
from openai.types import Completion as OpenAICompletion
from openai.types.chat import ChatCompletion as OpenAIChat
from openai.types.chat import ChatCompletionChunk as OpenAIChunk

from slipstream.server.protocol.responses import (
    UNSET,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionTokensDetails,
    PromptTokensDetails,
    Speculation,
    TokenLogprob,
    Usage,
)

USAGE = Usage(
    prompt_tokens=1,
    completion_tokens=2,
    total_tokens=3,
    prompt_tokens_details=PromptTokensDetails(0),
    completion_tokens_details=CompletionTokensDetails(1, 2),
    speculation=Speculation(num_verify_steps=1, num_draft_tokens=3, num_accepted=1, num_emitted=1),
)
LOGPROBS = ChatLogprobs([TokenLogprob(token="a", logprob=-0.5, bytes=[97])])
COMMON = {"id": "x", "created": 1, "model": "m"}


def test_a_chat_answer():
    choice = ChatChoice(message=ChatMessage(content="a"), finish_reason="stop", stop_reason=None, logprobs=LOGPROBS)
    sent = msgspec.json.encode(ChatCompletion(choices=[choice], usage=USAGE, **COMMON))
    read = OpenAIChat.model_validate_json(sent, strict=True)
    assert read.choices[0].message.content == "a"
    assert read.usage.completion_tokens_details.rejected_prediction_tokens == 2


def test_chat_chunks():
    choice = ChatChunkChoice(delta=ChatDelta(content="a"), logprobs=LOGPROBS)
    sent = msgspec.json.encode(ChatChunk(choices=[choice], **COMMON))
    assert "usage" not in msgspec.json.decode(sent)
    assert OpenAIChunk.model_validate_json(sent).choices[0].delta.content == "a"
    last = msgspec.json.encode(ChatChunk(choices=[], usage=USAGE, **COMMON))
    assert OpenAIChunk.model_validate_json(last).usage.total_tokens == 3
    assert msgspec.to_builtins(ChatDelta()) == {}
    assert msgspec.to_builtins(choice).get("stop_reason", UNSET) is UNSET


def test_a_completion():
    logprobs = CompletionLogprobs(tokens=["a"], token_logprobs=[-1.0], text_offset=[0])
    choice = CompletionChoice(index=0, text="a", finish_reason="length", stop_reason=None, logprobs=logprobs)
    sent = msgspec.json.encode(Completion(choices=[choice], usage=USAGE, **COMMON))
    assert OpenAICompletion.model_validate_json(sent, strict=True).choices[0].logprobs.tokens == ["a"]
