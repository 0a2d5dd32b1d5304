"""An answer is the same however its text is cut, and every piece of it says what it is and where it came from."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.frontend.answer_stream import AnswerStream, TokenText, join_answer, new_call_id
from slipstream.frontend.stream import Delta
from slipstream.text.tools.render import render_tool_calls
from support.profiles import relaxed

PARAMETERS = {
    "weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}},
    },
    "now": {"type": "object", "properties": {}},
}
CALLS = render_tool_calls([("weather", {"city": "São Paulo\n</b>", "days": 3, "tags": ["a", "b"]}), ("now", {})])
RECORDED = {
    "all three": f"<mm:think>\nLet me see: </tool> and <tool_call>.</mm:think>\n\nI look.\n{CALLS}",
    "content only": "Just < text ]<]mini and </mm: more.",
    "reasoning that never ends": "<mm:think>On and on",
    "calls only": CALLS,
    "a call that is cut off": CALLS[: CALLS.index("Paulo") + 3],
    "a tag that is cut off": f"Hello{CALLS[:20]}",
    "text behind the calls": f"{CALLS}\nDone.",
}


def ids():
    numbers = itertools.count()
    return lambda: f"id{next(numbers)}"


def stream(starts_in="undecided", parameters=PARAMETERS, **options) -> AnswerStream:
    return AnswerStream(starts_in, parameters, new_id=ids(), **options)


def deltas_of(pieces, *, run_len=1, finish_reason="stop", stop_reason=None):
    """Cut pieces, one per token, into deltas of runs whose last token is the target's own."""
    runs = [tuple(pieces[start : start + run_len]) for start in range(0, len(pieces), run_len)] or [()]
    return [
        Delta(
            text="".join(run),
            token_ids=tuple(range(len(run))),
            pieces=run,
            num_accepted=max(len(run) - 1, 0),
            finish_reason=finish_reason if place == len(runs) - 1 else None,
            stop_reason=stop_reason if place == len(runs) - 1 else None,
        )
        for place, run in enumerate(runs)
    ]


def read(answer: AnswerStream, deltas):
    return join_answer([answer.feed(delta) for delta in deltas])


def cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("text", RECORDED.values(), ids=RECORDED.keys())
def test_every_split_of_1_to_64_characters_gives_the_same_answer(text):
    whole = read(stream(), deltas_of([text]))
    for size in range(1, 65):
        for run_len in (1, 5):
            answer = read(stream(), deltas_of(cut(text, size), run_len=run_len))
            got = (answer.reasoning, answer.content, answer.calls, answer.finish_reason)
            assert got == (whole.reasoning, whole.content, whole.calls, whole.finish_reason), size


@relaxed
@given(st.sampled_from(list(RECORDED.values())), st.lists(st.integers(0, 300), max_size=12), st.integers(1, 6))
def test_the_texts_of_the_tokens_join_to_the_answer(text, places, run_len):
    bounds = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(bounds)]
    answer = read(stream(), deltas_of(pieces, run_len=run_len))
    by_part = {
        part: "".join(token.text for token in answer.tokens if token.part == part)
        for part in ("reasoning", "content", "call")
    }
    assert by_part["reasoning"] == answer.reasoning
    assert by_part["content"] == answer.content
    assert by_part["call"] == "".join(call.arguments for call in answer.calls)
    assert all(token.text for token in answer.tokens)


def test_what_the_parts_are():
    answer = read(stream(), deltas_of(cut(RECORDED["all three"], 3)))
    assert answer.reasoning == "Let me see: </tool> and <tool_call>."
    assert answer.content == "I look."
    assert [(call.id, call.name) for call in answer.calls] == [("id0", "weather"), ("id1", "now")]
    assert json.loads(answer.calls[0].arguments) == {"city": "São Paulo\n</b>", "days": 3, "tags": ["a", "b"]}
    assert answer.finish_reason == "tool_calls"


def test_a_token_is_a_draft_or_the_targets_own():
    delta = Delta(text="abcd", token_ids=(1, 2, 3, 4), pieces=("a", "b", "", "cd"), num_accepted=2)
    assert stream("content").feed(delta).tokens == (
        TokenText("a", True, "content"),
        TokenText("b", True, "content"),
        TokenText("cd", False, "content"),
    )


def test_one_token_may_hold_the_end_of_reasoning_and_more():
    told = stream("reasoning").feed(Delta(text="", token_ids=(1,), pieces=("so</mm:think>yes",)))
    assert (told.reasoning, told.content) == ("so", "yes")
    assert [token.part for token in told.tokens] == ["reasoning", "content"]


def test_arguments_arrive_while_they_are_written():
    answer = stream("content")
    opening = CALLS[: CALLS.index("São")]
    assert answer.feed(Delta(text="", token_ids=(1,), pieces=(opening,))).calls[0].name == "weather"
    told = [answer.feed(Delta(text="", token_ids=(1,), pieces=("x" * 10,))) for _ in range(50)]
    assert all("x" * 10 in delta.calls[0].arguments for delta in told)
    assert all((delta.calls[0].id, delta.calls[0].name) == (None, None) for delta in told)


@pytest.mark.parametrize(
    ("text", "finish_reason", "stop_reason", "ends_with", "is_whole"),
    [
        (CALLS, "stop", None, "tool_calls", True),
        (CALLS, "stop", "END", "tool_calls", True),
        (CALLS, "length", None, "length", True),
        ("text", "stop", None, "stop", None),
        (RECORDED["a call that is cut off"], "stop", None, "tool_calls", True),
        (RECORDED["a call that is cut off"], "stop", "Pau", "stop", False),
        (RECORDED["a call that is cut off"], "stop", 7, "stop", False),
        (RECORDED["a call that is cut off"], "length", None, "length", False),
    ],
)
def test_how_an_answer_with_calls_ends(text, finish_reason, stop_reason, ends_with, is_whole):
    """A call that the model itself left open is closed; one that a limit or a stop cut off is not made whole."""
    answer = read(stream(), deltas_of([text], finish_reason=finish_reason, stop_reason=stop_reason))
    assert (answer.finish_reason, answer.stop_reason) == (ends_with, stop_reason)
    if is_whole is None:
        assert answer.calls == ()
    elif is_whole:
        assert json.loads(answer.calls[0].arguments)
    else:
        with pytest.raises(ValueError, match="Unterminated string"):
            json.loads(answer.calls[0].arguments)


def test_without_tools_a_call_is_text():
    answer = read(stream("content", None), deltas_of(cut(CALLS, 4)))
    assert (answer.content, answer.calls, answer.finish_reason) == (CALLS, (), "stop")


def test_calls_beyond_the_most_are_dropped():
    answer = read(stream(max_calls=1), deltas_of(cut(CALLS, 4)))
    assert [call.name for call in answer.calls] == ["weather"]
    assert answer.finish_reason == "tool_calls"
    assert "".join(token.text for token in answer.tokens) == answer.calls[0].arguments


def test_a_call_in_reasoning_is_reasoning():
    answer = read(stream("reasoning"), deltas_of(cut(f"I could {CALLS}", 4)))
    assert (answer.reasoning, answer.calls, answer.finish_reason) == (f"I could {CALLS}", (), "stop")


def test_an_error_ends_the_answer_as_it_is():
    answer = read(stream("content"), [Delta(text="", token_ids=(), finish_reason="error", error="NaN")])
    assert (answer.content, answer.finish_reason) == ("", "error")


def test_no_deltas_are_no_answer():
    assert join_answer([]).finish_reason is None


def test_ids_of_calls_are_distinct():
    assert len({new_call_id() for _ in range(100)}) == 100
