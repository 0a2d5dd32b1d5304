"""Parts come one after the other, whole, and hold everything that was said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstream.frontend.answer_stream import AnswerDelta
from slipstream.server.protocol.answer_parts import AnswerParts
from slipstream.text.tools.parser import CallDelta
from support.answer_world import begun, reasoning


def play(deltas):
    parts = AnswerParts()
    events = [event for delta in deltas for event in parts.feed(delta)]
    return parts, [(event.what, event.part.index, event.text) for event in events]


def shown(parts):
    return [(part.kind, part.text) for part in parts.parts]


END = AnswerDelta(finish_reason="stop")


def test_reasoning_then_text_then_calls():
    parts, events = play(
        [
            reasoning("Let "),
            AnswerDelta(reasoning="me", content="Hel"),
            AnswerDelta(content="lo", calls=(begun(0, "f", '{"a'),)),
            AnswerDelta(calls=(CallDelta(0, '":1}'), begun(1, "g", "{}"))),
            AnswerDelta(finish_reason="tool_calls"),
        ]
    )
    assert shown(parts) == [("reasoning", "Let me"), ("text", "Hello"), ("call", '{"a":1}'), ("call", "{}")]
    assert [(part.call_id, part.name) for part in parts.parts[2:]] == [("call_0", "f"), ("call_1", "g")]
    assert events == [
        ("begin", 0, ""), ("more", 0, "Let "), ("more", 0, "me"), ("end", 0, ""),
        ("begin", 1, ""), ("more", 1, "Hel"), ("more", 1, "lo"), ("end", 1, ""),
        ("begin", 2, ""), ("more", 2, '{"a'), ("more", 2, '":1}'), ("end", 2, ""),
        ("begin", 3, ""), ("more", 3, "{}"), ("end", 3, ""),
    ]  # fmt: skip
    assert parts.num_reasoning_tokens == 1
    assert not any(part.is_cut for part in parts.parts)


def test_text_behind_a_call_waits_for_the_end():
    parts, events = play(
        [
            AnswerDelta(calls=(begun(0, "f", "{"),)),
            AnswerDelta(content="by the "),
            AnswerDelta(calls=(CallDelta(0, "}"),)),
            AnswerDelta(content="way", finish_reason="tool_calls"),
        ]
    )
    assert shown(parts) == [("call", "{}"), ("text", "by the way")]
    assert events[-3:] == [("begin", 1, ""), ("more", 1, "by the way"), ("end", 1, "")]


def test_an_empty_answer_has_no_parts():
    parts, events = play([AnswerDelta(), END])
    assert (parts.parts, events) == ([], [])


def test_a_call_that_was_cut_off_says_so():
    for arguments in ("", '{"a": "b', "{"):
        parts, _ = play([AnswerDelta(calls=(begun(0, "f", arguments),), finish_reason="length")])
        assert parts.parts[0].is_cut
    parts, _ = play([AnswerDelta(content="{", finish_reason="length")])
    assert not parts.parts[0].is_cut


pieces = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=3).map(lambda text: AnswerDelta(reasoning=text)),
        st.text(min_size=1, max_size=3).map(lambda text: AnswerDelta(content=text)),
    ),
    max_size=8,
)


@given(pieces, st.lists(st.text(max_size=4), max_size=3))
def test_nothing_is_lost_and_parts_never_overlap(said, calls):
    deltas = [*said, *(AnswerDelta(calls=(begun(i, "f", text),)) for i, text in enumerate(calls)), END]
    parts, events = play(deltas)
    for kind, field in (("reasoning", "reasoning"), ("text", "content")):
        assert "".join(p.text for p in parts.parts if p.kind == kind) == "".join(getattr(d, field) for d in deltas)
    assert [part.text for part in parts.parts if part.kind == "call"] == calls
    open_part = None
    for what, index, _ in events:
        if what == "begin":
            assert open_part is None
            open_part = index
        assert open_part == index
        if what == "end":
            open_part = None
    assert open_part is None
    assert [index for what, index, _ in events if what == "begin"] == list(range(len(parts.parts)))
