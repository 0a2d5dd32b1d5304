"""A chat without a model: a scripted source, and a screen that remembers what it wrote."""

from __future__ import annotations

import asyncio
import io

from rich.console import Console

from slipstream.base.errors import SlipstreamError
from slipstream.cli.chat.dialogue import Dialogue
from slipstream.cli.chat.screen import Screen
from slipstream.cli.chat.source import Ended, Piece, Settings

END = Ended(
    finish_reason="stop",
    num_prompt_tokens=7,
    num_output_tokens=5,
    num_verify_steps=2,
    num_draft_tokens=6,
    num_accepted=2,
    num_emitted=4,
)
ANSWER = (
    Piece("Let me see.", False, "reasoning"),
    Piece("\nWell", False),
    Piece(" there", True),
    Piece(" you", True),
    Piece(" are", False),
    END,
)


class ScriptedSource:
    """Answers with the next of its scripts; an error in a script is raised, and `...` waits until it is cancelled."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.asked = []
        self.num_left_early = 0

    def describe(self):
        return "scripted"

    async def answer(self, messages, settings):
        self.asked.append((list(messages), settings))
        script = self.scripts.pop(0)
        try:
            for event in script:
                if isinstance(event, SlipstreamError):
                    raise event
                if event is ...:
                    await asyncio.Event().wait()
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            self.num_left_early += 1
            raise

    async def close(self):
        pass


class Terminal:
    """A dialogue with what it wrote: `out` to standard output, `notes` to standard error."""

    def __init__(self, *scripts, is_terminal=True, has_colour=False, system=None):
        self.source = ScriptedSource(*scripts)
        self._out = []
        self._notes = io.StringIO()
        console = Console(file=self._notes, width=200, soft_wrap=True)
        screen = Screen(self._out.append, is_terminal=is_terminal, has_colour=has_colour, console=console)
        ticks = iter(range(1000))
        self.dialogue = Dialogue(self.source, screen, Settings(), system=system, clock=lambda: float(next(ticks)))

    @property
    def out(self):
        return "".join(self._out)

    @property
    def notes(self):
        return self._notes.getvalue()

    def say(self, line):
        if not self.dialogue.run_command(line):
            asyncio.run(self.dialogue.say(line))
