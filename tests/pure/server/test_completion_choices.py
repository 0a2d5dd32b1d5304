"""Pieces of a choice add up to the whole one, and say where in the text each token begins."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from slipstream.frontend.stream import Delta
from slipstream.server.completion_choices import ChoiceWriter, PromptText, Shown
from slipstream.server.protocol.responses import UNSET
from support.http_world import TEXT

TOKENIZER = TEXT.tokenizer
END = TOKENIZER.control_ids["[e~["]
TURN = TOKENIZER.control_ids["]~b]"]
A, B, C, D = TOKENIZER.encode_plain("ABCD")
ALL = Shown(num_logprobs=1, num_prompt_logprobs=2, echo=True, has_ids=True)


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text))


def writer(shown: Shown, prompt: str = "AB", index: int = 3, **options) -> ChoiceWriter:
    return ChoiceWriter(TOKENIZER, shown, index, PromptText(TOKENIZER, ids_of(prompt), prompt, **options))


def delta(text: str, token_ids: tuple[int, ...], prompt: str = "", **fields) -> Delta:
    """A delta whose log-probabilities tell the tokens apart."""
    prompt_ids = ids_of(prompt)[1:]
    return Delta(
        text=text,
        token_ids=token_ids,
        logprobs=tuple(-float(id_) for id_ in token_ids),
        top_logprobs=tuple(((id_ + 1, -0.5), (id_ + 2, -1.0))[:1] for id_ in token_ids),
        prompt_logprobs=tuple(-2.0 * id_ for id_ in prompt_ids),
        prompt_top_logprobs=tuple(((id_ + 1, -0.5), (id_, -2.0 * id_)) for id_ in prompt_ids),
        **fields,
    )


def test_a_plain_choice():
    choice = writer(Shown()).write(delta("CD", (C, D), finish_reason="length"))
    assert msgspec.to_builtins(choice) == {
        "index": 3, "text": "CD", "finish_reason": "length", "stop_reason": None, "logprobs": None,
    }  # fmt: skip


def test_logprobs_have_the_token_and_its_alternatives():
    logprobs = writer(Shown(num_logprobs=1)).write(delta("CD", (C, D))).logprobs
    assert logprobs.tokens == ["C", "D"]
    assert logprobs.token_logprobs == [-C, -D]
    assert logprobs.top_logprobs == [{"C": -C, "D": -0.5}, {"D": -D, "E": -0.5}]
    assert logprobs.text_offset == [0, 1]


def test_without_alternatives_there_is_the_token_itself():
    plain = msgspec.structs.replace(delta("C", (C,)), top_logprobs=())
    assert writer(Shown(num_logprobs=0)).write(plain).logprobs.top_logprobs == [{"C": -C}]


def test_of_tokens_with_equal_text_the_likeliest_counts():
    parts = [TOKENIZER.encode_plain(letter)[0] for letter in "éĀ"]
    assert len({TOKENIZER.decode([id_]) for id_ in parts}) == 1
    for order in (parts, parts[::-1]):
        top = tuple((id_, -1.0 - place) for place, id_ in enumerate(parts) if id_ != order[0])
        one = Delta(text="", token_ids=(order[0],), logprobs=(-1.0 - parts.index(order[0]),), top_logprobs=(top,))
        assert writer(Shown(num_logprobs=1)).write(one).logprobs.top_logprobs == [{"\ufffd": -1.0}]


def test_an_echo_begins_with_the_prompt():
    choice = writer(Shown(num_logprobs=1, echo=True)).write(delta("CD", (C, D), prompt="AB"))
    assert choice.text == "ABCD"
    assert choice.logprobs.tokens == ["A", "B", "C", "D"]
    assert choice.logprobs.token_logprobs == [None, -2.0 * B, -C, -D]
    assert choice.logprobs.top_logprobs == [
        None,
        {"B": -2.0 * B, "C": -0.5},
        {"C": -C, "D": -0.5},
        {"D": -D, "E": -0.5},
    ]
    assert choice.logprobs.text_offset == [0, 1, 2, 3]


def test_an_echo_without_logprobs_is_text():
    choice = writer(Shown(echo=True)).write(delta("CD", (C, D)))
    assert (choice.text, choice.logprobs) == ("ABCD", None)


def test_logprobs_of_the_prompt_have_as_many_alternatives_as_each_asked_for():
    choice = writer(ALL).write(delta("C", (C,), prompt="AB"))
    assert choice.logprobs.top_logprobs[1] == {"B": -2.0 * B, "C": -0.5}
    assert set(choice.prompt_logprobs[1]) == {str(B), str(B + 1)}
    assert choice.prompt_logprobs[1][str(B)].rank == 2
    few = writer(changed(ALL, num_prompt_logprobs=0)).write(delta("C", (C,), prompt="AB"))
    assert set(few.prompt_logprobs[1]) == {str(B)}


def changed(shown: Shown, **changes) -> Shown:
    return Shown(**(vars(shown) | changes))


def test_a_prompt_that_is_scored_alone_hides_the_token_that_was_drawn():
    shown = changed(ALL, is_prompt_only=True)
    one = writer(shown)
    choice = one.write(delta("C", (C,), prompt="AB", finish_reason="stop", stop_reason=5))
    assert (choice.text, choice.finish_reason, choice.stop_reason) == ("AB", "length", None)
    assert (choice.logprobs.tokens, choice.logprobs.text_offset) == (["A", "B"], [0, 1])
    assert (choice.token_ids, choice.prompt_token_ids) == ([], [A, B])
    assert one.usage.completion_tokens == 0
    silent = writer(changed(shown, echo=False)).write(delta("C", (C,), prompt="AB", finish_reason="length"))
    assert (silent.text, silent.logprobs.tokens, len(silent.prompt_logprobs)) == ("", [], 2)


TEXTS = ["plain words", "é€😀 mixed", "😀😀", "end[e~[of", "tab\tand\nline"]


@pytest.mark.parametrize("shown", [ALL, Shown(num_logprobs=1), changed(ALL, as_ids=True)])
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_add_up_to_the_whole(shown, text):
    token_ids = ids_of(text)
    whole = writer(shown, prompt=text).write(delta(text, token_ids, prompt=text, finish_reason="stop"))
    for cut in range(1, len(token_ids)):
        one = writer(shown, prompt=text)
        first = one.write(delta(text[:1], token_ids[:cut], prompt=text))
        second = one.write(delta(text[1:], token_ids[cut:], finish_reason="stop"))
        assert first.text + second.text == whole.text
        for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            assert getattr(first.logprobs, name) + getattr(second.logprobs, name) == getattr(whole.logprobs, name)
        assert (first.prompt_logprobs, first.prompt_token_ids) == (whole.prompt_logprobs, whole.prompt_token_ids)
        assert (second.prompt_logprobs, second.prompt_token_ids) == (UNSET, UNSET)
        if shown.has_ids:
            assert first.token_ids + second.token_ids == whole.token_ids == list(token_ids)
        assert one.usage.completion_tokens == len(token_ids)


@pytest.mark.parametrize("text", TEXTS)
def test_offsets_cut_the_text_into_its_tokens(text):
    """Also where a character has several tokens: all of them begin where it begins."""
    token_ids = ids_of(text)
    shown = Shown(num_logprobs=0, echo=True, skips_special=False)
    choice = writer(shown, prompt=text).write(
        msgspec.structs.replace(delta(text, token_ids, prompt=text), top_logprobs=(), prompt_top_logprobs=())
    )
    offsets = [*choice.logprobs.text_offset, len(choice.text)]
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    assert offsets[len(token_ids)] == len(text)
    pieces = [choice.text[begin:end] for begin, end in pairwise(offsets)]
    assert "".join(pieces) == choice.text
    for piece, token in zip(pieces, choice.logprobs.tokens, strict=True):
        assert piece == token or "\ufffd" in token


def test_special_tokens_that_leave_no_text_have_no_width():
    token_ids = (TURN, A, END, B)
    hidden = writer(Shown(num_logprobs=1)).write(delta("AB", token_ids))
    assert hidden.logprobs.text_offset == [0, 0, 1, 1]
    shown = writer(Shown(num_logprobs=1, skips_special=False)).write(delta("]~b]A[e~[B", token_ids))
    assert shown.logprobs.text_offset == [0, 4, 5, 9]


def test_a_prompt_of_token_ids_is_echoed_with_its_control_tokens():
    prompt = PromptText(TOKENIZER, [TURN, A, END])
    assert (prompt.text, prompt.offsets) == ("]~b]A[e~[", [0, 4, 5])


def test_a_prefix_of_the_tokenizer_has_no_place_in_the_text():
    prompt = PromptText(TOKENIZER, [TURN, A, B], "AB")
    assert (prompt.text, prompt.offsets) == ("AB", [0, 0, 1])
    other = PromptText(TOKENIZER, [A, B], "ab")
    assert (other.text, other.offsets) == ("ab", [0, 1])


def test_work_grows_with_tokens_and_alternatives():
    one = writer(changed(ALL, echo=False))
    assert one.num_entries(Delta(text="a", token_ids=(1, 2))) == 0
    assert one.num_entries(delta("CD", (C, D))) == 4
    assert one.num_entries(delta("CD", (C, D), prompt="ABCDE")) == 18
    echoing = writer(ALL, prompt="ABC")
    assert echoing.num_entries(Delta(text="a", token_ids=(1, 2))) == 3
    echoing.write(delta("C", (C,), prompt="ABC"))
    assert echoing.num_entries(Delta(text="a", token_ids=(1, 2))) == 0


def test_usage_counts_what_was_written():
    one = writer(Shown())
    one.write(delta("C", (C,)))
    assert msgspec.to_builtins(one.usage) == {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
    one.write(delta("DD", (D, D)))
    assert one.usage.total_tokens == 5
