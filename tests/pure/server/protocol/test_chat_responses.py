"""What a conversation is answered with can be read by the types of the openai package."""

from __future__ import annotations

import msgspec
from openai.types.chat import ChatCompletion as OpenAIChat
from openai.types.chat import ChatCompletionChunk as OpenAIChunk

from slipstream.server.protocol.chat_responses import (
    UNSET,
    CalledFunction,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    ChatToolCall,
    FunctionDelta,
    TokenLogprob,
    ToolCallDelta,
    TopLogprob,
)
from support.usage import USAGE

TOP = TopLogprob(token="b", logprob=-0.25, bytes=[98])
LOGPROBS = ChatLogprobs([TokenLogprob(token="a", logprob=-0.5, bytes=[97], top_logprobs=[TOP])])
COMMON = {"id": "x", "created": 1, "model": "m"}


def test_a_chat_answer():
    choice = ChatChoice(message=ChatMessage(content="a"), finish_reason="stop", stop_reason=None, logprobs=LOGPROBS)
    sent = msgspec.json.encode(ChatCompletion(choices=[choice], usage=USAGE, **COMMON))
    read = OpenAIChat.model_validate_json(sent, strict=True)
    assert read.choices[0].message.content == "a"
    assert read.choices[0].logprobs.content[0].top_logprobs[0].token == "b"
    assert read.usage.completion_tokens_details.rejected_prediction_tokens == 2


def test_calls_and_reasoning():
    call = ChatToolCall(id="call_1", function=CalledFunction(name="f", arguments="{}"))
    message = ChatMessage(content=None, reasoning_content="hm", tool_calls=[call])
    choice = ChatChoice(message=message, finish_reason="tool_calls", stop_reason=None, logprobs=None)
    sent = msgspec.json.encode(ChatCompletion(choices=[choice], usage=USAGE, **COMMON))
    read = OpenAIChat.model_validate_json(sent, strict=True).choices[0].message
    assert (read.content, read.reasoning_content) == (None, "hm")
    assert read.tool_calls[0].function.name == "f"
    delta = ToolCallDelta(index=0, id="call_1", type="function", function=FunctionDelta(name="f", arguments=""))
    more = ToolCallDelta(index=0, function=FunctionDelta(arguments="{}"))
    assert msgspec.to_builtins(more) == {"index": 0, "function": {"arguments": "{}"}}
    chunk = ChatChunk(choices=[ChatChunkChoice(delta=ChatDelta(tool_calls=[delta, more]))], **COMMON)
    read = OpenAIChunk.model_validate_json(msgspec.json.encode(chunk)).choices[0].delta
    assert [call.function.arguments for call in read.tool_calls] == ["", "{}"]


def test_chat_chunks():
    choice = ChatChunkChoice(delta=ChatDelta(content="a"), logprobs=LOGPROBS)
    sent = msgspec.json.encode(ChatChunk(choices=[choice], **COMMON))
    assert "usage" not in msgspec.json.decode(sent)
    assert OpenAIChunk.model_validate_json(sent).choices[0].delta.content == "a"
    last = msgspec.json.encode(ChatChunk(choices=[], usage=USAGE, **COMMON))
    assert OpenAIChunk.model_validate_json(last).usage.total_tokens == 3
    assert msgspec.to_builtins(ChatDelta()) == {}
    assert msgspec.to_builtins(choice).get("stop_reason", UNSET) is UNSET
