"""A choice of a chat answer is the same whole and in pieces, and shows what was asked for."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.frontend.answer_stream import AnswerStream
from slipstream.frontend.stream import Delta
from slipstream.server.answer import join
from slipstream.server.chat_choices import ChatChoiceWriter, ShownChat
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.render import render_tool_calls
from support.tiny_text import tiny_folder

TOKENIZER = Tokenizer.load(tiny_folder())
CALLS = render_tool_calls([("f", {"a": "x"}), ("g", {})])
TEXT = f"<mm:think>hm</mm:think>Let me look.{CALLS}"


def deltas(text=TEXT, *, run_len=3, has_logprobs=False):
    ids = TOKENIZER.encode_plain(text)
    runs = [ids[start : start + run_len] for start in range(0, len(ids), run_len)]
    return [
        Delta(
            text=TOKENIZER.decode(run),
            token_ids=tuple(run),
            pieces=tuple(TOKENIZER.decode([id_]) for id_ in run),
            num_accepted=len(run) - 1,
            logprobs=(-0.5,) * len(run) if has_logprobs else (),
            finish_reason="stop" if place == len(runs) - 1 else None,
        )
        for place, run in enumerate(runs)
    ]


def writer(parameters=None, **shown) -> ChatChoiceWriter:
    parameters = {"f": {}, "g": {}} if parameters is None else parameters
    return ChatChoiceWriter(TOKENIZER, ShownChat(**shown), AnswerStream("undecided", parameters or None), 1)


def whole(text=TEXT, parameters=None, *, has_logprobs=False, **shown):
    parts = deltas(text, has_logprobs=has_logprobs)
    return msgspec.to_builtins(writer(parameters, **shown).whole(parts, join(parts)))


def pieces(text=TEXT, parameters=None, *, has_logprobs=False, **shown):
    one = writer(parameters, **shown)
    found = [one.piece(delta) for delta in deltas(text, has_logprobs=has_logprobs)]
    return [msgspec.to_builtins(piece) for piece in found if piece is not None]


def test_a_whole_choice():
    choice = whole()
    message = choice["message"]
    calls = message.pop("tool_calls")
    assert message == {
        "role": "assistant",
        "content": "Let me look.",
        "reasoning_content": "hm",
        "refusal": None,
    }
    assert [call["function"] for call in calls] == [
        {"name": "f", "arguments": '{"a":"x"}'},
        {"name": "g", "arguments": "{}"},
    ]
    assert all(call["type"] == "function" and call["id"].startswith("call_") for call in calls)
    assert (choice["index"], choice["finish_reason"], choice["stop_reason"]) == (1, "tool_calls", None)
    assert {"token_ids", "token_origins"} & choice.keys() == set()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hi", {"content": "hi"}),
        ("", {"content": ""}),
        ("<mm:think>hm", {"content": "", "reasoning_content": "hm"}),
    ],
)
def test_what_there_is_none_of_is_absent(text, message):
    parts = deltas(text) or [Delta(text="", token_ids=(), finish_reason="stop")]
    told = msgspec.to_builtins(writer().whole(parts, join(parts)))["message"]
    assert told == {"role": "assistant", "refusal": None} | message


def test_content_is_null_beside_calls_alone():
    assert whole(CALLS)["message"]["content"] is None


def test_pieces_join_to_the_whole():
    told = pieces()
    message = whole()["message"]
    assert "".join(piece["delta"].get("content", "") for piece in told) == message["content"]
    assert "".join(piece["delta"].get("reasoning_content", "") for piece in told) == message["reasoning_content"]
    calls: dict[int, dict] = {}
    for delta in (call for piece in told for call in piece["delta"].get("tool_calls", ())):
        if delta["index"] not in calls:
            assert delta.keys() == {"index", "id", "type", "function"}
            calls[delta["index"]] = {"name": delta["function"]["name"], "arguments": ""}
        else:
            assert delta.keys() == {"index", "function"}
            assert delta["function"].keys() == {"arguments"}
        calls[delta["index"]]["arguments"] += delta["function"]["arguments"]
    assert [calls[place] for place in sorted(calls)] == [call["function"] for call in message["tool_calls"]]
    assert [piece["finish_reason"] for piece in told] == [None] * (len(told) - 1) + ["tool_calls"]
    assert all(piece["index"] == 1 for piece in told)
    assert "stop_reason" not in told[0]
    assert told[-1]["stop_reason"] is None


def test_pieces_in_which_nothing_can_be_seen_are_left_out():
    assert len(pieces()) < len(deltas())
    with_logprobs = pieces(has_logprobs=True)
    assert len(with_logprobs) == len(deltas())
    assert all(piece["logprobs"]["content"] for piece in with_logprobs)
    assert len(pieces(has_ids=True)) == len(deltas())


def test_reasoning_can_be_left_out():
    assert "reasoning_content" not in whole(has_reasoning=False)["message"]
    told = pieces(has_reasoning=False, has_origins=True)
    assert not any("reasoning_content" in piece["delta"] for piece in told)
    assert {token["part"] for piece in told for token in piece["token_origins"]} == {"content", "call"}


def test_origins_are_told_by_token():
    origins = whole(has_origins=True)["token_origins"]
    assert [token for piece in pieces(has_origins=True) for token in piece["token_origins"]] == origins
    parts = {
        part: "".join(token["text"] for token in origins if token["part"] == part)
        for part in ("reasoning", "content", "call")
    }
    assert parts == {"reasoning": "hm", "content": "Let me look.", "call": '{"a":"x"}{}'}
    assert {token["is_draft"] for token in origins} == {True, False}


def test_ids_and_names_of_tokens():
    choice = whole("hi", has_ids=True, as_ids=True, has_logprobs=True)
    ids = TOKENIZER.encode_plain("hi")
    assert choice["token_ids"] == ids
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [f"token_id:{id_}" for id_ in ids]
    assert [id_ for piece in pieces("hi", has_ids=True) for id_ in piece["token_ids"]] == ids


def test_a_stream_begins_with_the_role():
    assert msgspec.to_builtins(writer().begin()) == {
        "index": 1,
        "delta": {"role": "assistant", "content": ""},
        "finish_reason": None,
        "logprobs": None,
    }
