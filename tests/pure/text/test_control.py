"""Stand-ins hide every character that could take part in a control token, and come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.base.errors import RequestError
from slipstream.text.control import ControlText
from support.profiles import relaxed
from support.tiny_text import CONTROL

CONTROL_TEXT = ControlText(CONTROL)
texts = st.lists(
    st.one_of(st.sampled_from(CONTROL), st.text(max_size=6), st.text(alphabet="]~!b[e<>/:mthink_ ", max_size=5)),
    max_size=6,
).map("".join)


@relaxed
@given(texts)
def test_hidden_text_holds_no_control_token_and_comes_back(text):
    marks = CONTROL_TEXT.marks([text])
    hidden = marks.hide(text)
    assert not CONTROL_TEXT.occurs_in(hidden)
    assert marks.show(hidden) == text


@relaxed
@given(texts, texts, texts)
def test_what_a_user_writes_cannot_complete_what_a_template_writes(before, user, after):
    """Control tokens in before + user + after all lie in what the template wrote."""
    marks = CONTROL_TEXT.marks([before, user, after])
    rendered = before + marks.hide(user) + after
    own = range(len(before), len(before) + len(marks.hide(user)))
    for control in CONTROL:
        place = rendered.find(control)
        while place >= 0:
            taken = set(range(place, place + len(control))) & set(own)
            assert all(rendered[i].isspace() or rendered[i].isalnum() for i in taken), (control, rendered)
            place = rendered.find(control, place + 1)


@pytest.mark.parametrize("fragment", ["~b", "mm:think", "b", "think", " minimax ", "start of image"])
def test_a_fragment_from_inside_a_control_token_is_hidden_whole(fragment):
    """A template that wraps user text in brackets of its own must not complete a control token."""
    hidden = CONTROL_TEXT.marks([fragment]).hide(fragment)
    for control in CONTROL:
        for cut in range(1, len(control)):
            assert control[:cut] + hidden.strip() + control[cut:] != control
    assert not any(character.isalnum() for character in hidden)


def test_white_space_and_letters_stay():
    marks = CONTROL_TEXT.marks([])
    assert marks.hide("  Hello, World 12\n") == "  Hello, World 12\n"


def test_think_tags_of_the_assistant_stay_and_turn_markers_do_not():
    marks = CONTROL_TEXT.marks([])
    own = marks.hide_own_words("<mm:think>a]~b]</mm:think><think>words</think>[e~[")
    assert own.startswith("<mm:think>a")
    assert "</mm:think><think>words</think>" in own
    assert "]~b]" not in own
    assert "[e~[" not in own


def test_stand_ins_avoid_private_characters_of_the_input():
    text = "".join(chr(0xF0000 + place) for place in range(0, 400, 7)) + "]~b]"
    marks = CONTROL_TEXT.marks([text])
    assert set(marks.restore).isdisjoint(map(ord, text))
    assert marks.show(marks.hide(text)) == text


def test_a_text_that_uses_up_the_private_planes_is_refused():
    crowded = "".join(map(chr, range(0xF0000, 0x110000, 8)))
    with pytest.raises(RequestError, match="private-use"):
        CONTROL_TEXT.marks([crowded])


def test_control_tokens_of_letters_only_are_hidden_too():
    words = ControlText(["STOP", " "])
    marks = words.marks([])
    assert "STOP" not in marks.hide("please STOP here")
    assert "STOP" not in "ST" + marks.hide("O") + "P"
