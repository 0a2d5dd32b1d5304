"""What is written: colours by origin, words without them, and bare answers in a pipe."""

from __future__ import annotations

from slipstream.cli.chat.source import Piece
from support.chat_terminal import ANSWER, Terminal


def test_tokens_are_coloured_by_origin_and_reasoning_is_dim():
    terminal = Terminal(ANSWER, has_colour=True)
    terminal.say("hi")
    assert terminal.out == "\x1b[2mLet me see.\x1b[0m\nWell\x1b[32m there you\x1b[0m are\n"


def test_a_drafted_thought_is_dim_and_green():
    terminal = Terminal([Piece("hm", True, "reasoning"), *ANSWER[-1:]], has_colour=True)
    terminal.say("hi")
    assert terminal.out == "\x1b[2;32mhm\x1b[0m\n"


def test_an_unknown_origin_has_no_colour():
    terminal = Terminal([Piece("hm", None), *ANSWER[-1:]], has_colour=True)
    terminal.say("hi")
    assert terminal.out == "hm\n"


def test_without_colour_words_say_which_part_it_is():
    terminal = Terminal(ANSWER)
    terminal.say("hi")
    assert terminal.out == "[thinking] Let me see.\n[answer] Well there you are\n"


def test_an_answer_without_reasoning_needs_no_label():
    terminal = Terminal(ANSWER[1:])
    terminal.say("hi")
    assert terminal.out == "Well there you are\n"


def test_a_pipe_gets_the_answer_and_nothing_else():
    terminal = Terminal(ANSWER, is_terminal=False)
    terminal.say("hi")
    assert terminal.out == "\nWell there you are\n"
    assert terminal.notes == ""


def test_a_model_cannot_talk_to_the_terminal():
    terminal = Terminal([Piece("a\x1b[2Jb\x07\x9bc\rd\te\n", False), *ANSWER[-1:]])
    terminal.say("hi")
    assert terminal.out == "a\N{REPLACEMENT CHARACTER}[2Jb" + "\N{REPLACEMENT CHARACTER}" * 2 + "c" + (
        "\N{REPLACEMENT CHARACTER}d\te\n"
    )


def test_colours_can_be_switched_while_talking():
    terminal = Terminal(ANSWER[1:], ANSWER[1:])
    terminal.say("/colour on")
    terminal.say("hi")
    assert "\x1b[32m" in terminal.out
    seen = len(terminal.out)
    terminal.say("/colour off")
    terminal.say("hi")
    assert "\x1b" not in terminal.out[seen:]
    pipe = Terminal(is_terminal=False)
    pipe.say("/colour on")
    assert "for a terminal" in pipe.notes
    assert not pipe.dialogue.screen.has_colour
