"""The conversation and its commands, over a scripted source."""

from __future__ import annotations

import asyncio
import json

import pytest

from slipstream.base.errors import EngineError, RequestError
from slipstream.cli.chat.dialogue import COMMANDS, describe_total
from slipstream.cli.chat.source import Piece
from support.chat_terminal import ANSWER, END, Terminal

USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "\nWell there you are", "reasoning_content": "Let me see."}


def test_an_answer_is_kept_and_counted():
    terminal = Terminal(ANSWER, ANSWER, system="Be kind.")
    terminal.say("hi")
    terminal.say("and you?")
    first, second = terminal.source.asked
    system = {"role": "system", "content": "Be kind."}
    assert first[0] == [system, USER]
    assert second[0] == [system, USER, SAID, {"role": "user", "content": "and you?"}]
    assert "acceptance length 2.00 (2 of 6 drafts, 2 verify steps)" in terminal.notes
    assert "5 tokens" in terminal.notes
    assert "tokens/s" in terminal.notes


def test_an_error_is_told_and_the_chat_goes_on_without_the_message():
    broken = [Piece("Hal", False), EngineError("the engine died of old age")]
    terminal = Terminal(broken, ANSWER)
    terminal.say("first")
    assert "the engine died of old age" in terminal.notes
    assert terminal.dialogue.messages == []
    assert terminal.dialogue.num_failures == 1
    terminal.say("hi")
    assert terminal.dialogue.messages == [USER, SAID]


def test_a_full_context_says_how_to_begin_anew_once_there_is_something_to_leave():
    full = [RequestError("the prompt has 3000 tokens", code="context_length_exceeded")]
    terminal = Terminal(full, ANSWER, full, [RequestError("no")], full, system="Be kind.")
    terminal.say("long")
    assert "/reset" not in terminal.notes
    terminal.say("hi")
    terminal.say("more")
    assert terminal.notes.count("the prompt has 3000 tokens; /reset begins anew\n") == 1
    terminal.say("other")
    terminal.say("/reset")
    terminal.say("again")
    assert terminal.notes.count("/reset begins anew") == 1


def test_a_pipe_gets_no_line_for_a_message_that_failed():
    error = EngineError("no")
    terminal = Terminal([error], [Piece("Hal", False), error], ANSWER[1:], is_terminal=False)
    for line in ("first", "second", "third"):
        terminal.say(line)
    assert terminal.out == "Hal\n\nWell there you are\n"
    assert terminal.notes.count("no") == 2


def test_a_stopped_answer_keeps_what_was_said_and_leaves_the_source():
    terminal = Terminal([Piece("Well", False), ...])

    async def stop_soon():
        saying = asyncio.create_task(terminal.dialogue.say("hi"))
        while not terminal.out:
            await asyncio.sleep(0)
        saying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saying

    asyncio.run(stop_soon())
    assert terminal.source.num_left_early == 1
    assert terminal.dialogue.messages == [USER, {"role": "assistant", "content": "Well"}]
    assert terminal.out == "Well\n"


def test_commands_change_how_the_next_answer_is_made():
    terminal = Terminal(ANSWER)
    for line in ("/think on", "/temp 0.7", "/seed 9"):
        terminal.say(line)
    terminal.say("hi")
    settings = terminal.source.asked[0][1]
    assert (settings.temperature, settings.seed, settings.template_kwargs) == (0.7, 9, {"thinking_mode": "enabled"})
    terminal.say("/seed off")
    terminal.say("/think auto")
    assert (terminal.dialogue.settings.seed, terminal.dialogue.settings.template_kwargs) == (None, {})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/nonsense", "/help"),
        ("/think perhaps", "auto, on, off"),
        ("/temp warm", "give a number"),
        ("/temp -1", "temperature=-1.0 is not allowed"),
        ("/seed 1.5", "whole number"),
        ("/colour pink", "on or off"),
        ("/save", "needs a file"),
        ("/save /no/such/folder/chat.json", "No such file"),
    ],
)
def test_a_mistaken_command_is_told_and_changes_nothing(line, says):
    terminal = Terminal()
    before = terminal.dialogue.settings
    terminal.say(line)
    assert says in terminal.notes
    assert terminal.dialogue.settings == before
    assert terminal.source.asked == []


def test_help_names_every_command():
    terminal = Terminal()
    terminal.say("/help")
    assert [name for name in COMMANDS if name not in terminal.notes] == []


def test_reset_forgets_all_but_the_system_message():
    terminal = Terminal(ANSWER, system="Be kind.")
    terminal.say("hi")
    terminal.say("/reset")
    assert terminal.dialogue.messages == [{"role": "system", "content": "Be kind."}]


def test_a_conversation_is_saved_once(tmp_path):
    terminal = Terminal(ANSWER)
    terminal.say("hi")
    file = tmp_path / "chat.json"
    terminal.say(f"/save {file}")
    assert json.loads(file.read_text(encoding="utf-8"))["messages"] == [USER, SAID]
    terminal.say("/reset")
    terminal.say(f"/save {file}")
    assert "the file exists" in terminal.notes
    assert json.loads(file.read_text(encoding="utf-8"))["messages"] == [USER, SAID]


def test_two_slashes_begin_a_message():
    terminal = Terminal(ANSWER)
    terminal.say("//etc is a folder")
    assert terminal.source.asked[0][0] == [{"role": "user", "content": "/etc is a folder"}]


def test_quit_ends_the_chat():
    terminal = Terminal()
    terminal.say("/quit")
    assert terminal.dialogue.is_over


def test_stats_are_over_all_answers():
    assert describe_total([]) == "no answer yet"
    terminal = Terminal(ANSWER, [*ANSWER[:-1], type(END)(**{**_fields(END), "num_emitted": 8})])
    terminal.say("hi")
    terminal.say("hi")
    terminal.say("/stats")
    assert "2 answers, 10 tokens" in terminal.notes
    assert "acceptance length 3.00 (4 of 12 drafts)" in terminal.notes


def _fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
