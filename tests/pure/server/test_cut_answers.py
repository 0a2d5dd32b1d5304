"""Answers with calls, cut at every token and every character: no client sees the markup of a call as text."""

from __future__ import annotations

import functools
import itertools
import json
from typing import Any

import msgspec
import pytest

from slipstream.demo import demo_path
from slipstream.frontend.answer_stream import AnswerStream
from slipstream.frontend.stream import Delta
from slipstream.server.answer import join
from slipstream.server.chat_choices import ChatChoiceWriter, ShownChat
from slipstream.server.protocol.messages.output import MessageAnswer
from slipstream.server.protocol.response_api.input import ask_of
from slipstream.server.protocol.response_api.output import ResponseAnswer
from slipstream.server.protocol.response_api.requests import ResponseRequest
from slipstream.text.messages import parse_messages
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.render import render_tool_calls
from slipstream.text.tools.schema import parse_tools
from slipstream.text.tools.syntax import NAMESPACE
from support import dialogues
from support.answer_world import counts
from support.answers import PARAMETERS, load_answers

TOKENIZER = Tokenizer.load(demo_path())


@functools.cache
def tool_answers() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Return (what it starts in, text, schemas by name) of every recorded answer that holds calls."""
    found = {}
    for answer in load_answers():
        if NAMESPACE in answer.text and NAMESPACE not in answer.seen.content + answer.seen.reasoning:
            found[answer.name] = (answer.starts_in, answer.text, PARAMETERS)
    for name in dialogues.names():
        asked = dialogues.dialogue(name)
        parameters = parse_tools(asked.get("tools")).parameters
        for place, message in enumerate(parse_messages(asked["messages"])):
            calls = [call["function"] for call in message.get("tool_calls", ())]
            block = render_tool_calls([(call["name"], call["arguments"]) for call in calls]) if calls else ""
            if block and NAMESPACE not in message["content"] and NAMESPACE not in json.dumps([*map(str, calls)]):
                found[f"{name}, message {place}"] = ("content", message["content"] + block, parameters)
    return found


def pieces_of(text: str) -> list[str]:
    """Return a text in tokens as the bundled tokenizer writes it."""
    return [TOKENIZER.decode([id_], skip_special_tokens=False) for id_ in TOKENIZER.encode(text)]


def beginnings(text: str, size: str) -> list[list[str]]:
    """Return every beginning of a text: in tokens, or to any character and in one piece."""
    pieces = pieces_of(text)
    ends = range((len(text) if size == "characters" else len(pieces)) + 1)
    return [[text[:end]] if size == "characters" else pieces[:end] for end in ends]


def stream_of(starts_in: Any, parameters: dict[str, Any]) -> AnswerStream:
    return AnswerStream(starts_in, parameters)


def chat_texts(stream, deltas, joined) -> tuple[list[str], str]:
    """Return the text that a client sees at once and in a stream, and the reason of the end."""
    whole = ChatChoiceWriter(TOKENIZER, ShownChat(), stream(), 0).whole(deltas, joined)
    writer = ChatChoiceWriter(TOKENIZER, ShownChat(), stream(), 0)
    chunks = msgspec.to_builtins([piece for delta in deltas if (piece := writer.piece(delta)) is not None])
    streamed = "".join(chunk["delta"].get("content", "") for chunk in chunks)
    assert chunks[-1]["finish_reason"] == whole.finish_reason
    return [whole.message.content or "", streamed], str(whole.finish_reason)


def message_texts(stream, deltas, joined) -> tuple[list[str], str]:
    reader, answer = stream(), MessageAnswer("m", counts())
    events = msgspec.to_builtins([event for delta in deltas for event in answer.feed(reader.feed(delta))])
    message = msgspec.to_builtins(answer.whole())
    streamed = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
    texts = "".join(block["text"] for block in message["content"] if block["type"] == "text")
    reasons = {"max_tokens": "length", "stop_sequence": "stop", "tool_use": "tool_calls"}
    return [texts, streamed], reasons[message["stop_reason"]]


def response_texts(stream, deltas, joined) -> tuple[list[str], str]:
    asked = ResponseRequest(input="hi")
    reader, answer = stream(), ResponseAnswer(asked, ask_of(asked), "m", counts())
    events = msgspec.to_builtins([event for delta in deltas for event in answer.feed(reader.feed(delta))])
    body = msgspec.to_builtins(answer.whole())
    streamed = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    texts = [part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]]
    return ["".join(texts), streamed], "length" if body["status"] == "incomplete" else "stop"


def cut_behind(pieces: list[str], reason: Any) -> list[Delta]:
    """Return the deltas of an answer that a limit or a stop string ended behind its pieces."""
    shown = pieces or [""]
    middle = [Delta(text=text, token_ids=(0,), pieces=(text,)) for text in shown[:-1]]
    stop_reason = "END" if reason == "stop" else None
    end = {"finish_reason": reason, "stop_reason": stop_reason}
    return [*middle, Delta(text=shown[-1], token_ids=(0,), pieces=(shown[-1],), **end)]


def test_there_are_answers_with_calls_from_both_sources():
    names = list(tool_answers())
    assert len(names) >= 20
    assert sum(", message " in name for name in names) >= 6


@pytest.mark.parametrize("size", ["characters", "tokens"])
@pytest.mark.parametrize("name", tool_answers())
def test_an_answer_that_is_cut_anywhere_shows_no_markup(name, size):
    starts_in, text, parameters = tool_answers()[name]
    for pieces, reason in itertools.product(beginnings(text, size), ("length", "stop")):
        deltas = cut_behind(pieces, reason)
        texts = {}
        for read in (chat_texts, message_texts, response_texts):
            both, told = read(lambda: stream_of(starts_in, parameters), deltas, join(deltas))
            whole, streamed = both
            assert whole == streamed
            assert NAMESPACE not in whole, (pieces, read)
            assert not whole.rstrip().endswith(NAMESPACE[:3]), (pieces, read)
            assert told == reason or (reason, told) == ("stop", "tool_calls"), (pieces, read)
            texts[read] = whole
        assert len(set(texts.values())) == 1


def test_the_check_sees_markup():
    """What a reader that keeps a cut-off tag shows would not pass."""
    deltas = cut_behind(pieces_of(f"Look.{NAMESPACE}<tool_ca"), "length")
    both, _ = chat_texts(lambda: AnswerStream("content", None), deltas, join(deltas))
    assert NAMESPACE in both[0]
