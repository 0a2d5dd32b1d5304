"""A conversation: what was said, how to answer, and the commands that change both.

Not here: where lines come from (command), where answers come from (source), what is shown where (screen).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from slipstream.base.errors import RequestError, SlipstreamError
from slipstream.cli.chat.screen import LEGEND, Screen
from slipstream.cli.chat.source import THINKING, ChatSource, Ended, Piece, Settings
from slipstream.cli.generate import AnswerStats
from slipstream.frontend.processor import CONTEXT_CODE
from slipstream.harness.stats import acceptance_length

ESCAPE = "//"
"""A message that begins with a slash is written with two."""

Command = Callable[["Dialogue", str], None]


class Dialogue:
    """One conversation.

    Args:
        source: answers it.
        screen: shows it.
        settings: how to answer.
        system: instructions that every conversation begins with.
        clock: seconds, monotonic; injected by tests.
    """

    def __init__(
        self,
        source: ChatSource,
        screen: Screen,
        settings: Settings,
        *,
        system: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.screen = screen
        self.settings = settings
        self.is_over = False
        self.num_failures = 0
        self.answers: list[AnswerStats] = []
        self._source = source
        self._opening = [{"role": "system", "content": system}] if system else []
        self._clock = clock
        self.messages: list[dict[str, str]] = list(self._opening)

    def run_command(self, line: str) -> bool:
        """Run a line that is a command, and return whether it was one. A mistake is told, never raised."""
        if not line.startswith("/") or line.startswith(ESCAPE):
            return False
        name, _, argument = line.partition(" ")
        try:
            if name not in COMMANDS:
                raise RequestError(f"{name} is not a command: /help lists them; begin a message of this kind with //")
            COMMANDS[name][1](self, argument.strip())
        except SlipstreamError as error:
            self._fail(error)
        return True

    async def say(self, line: str) -> None:
        """Answer a message, showing the answer as it comes. An error is told and takes the message back.

        What was said until a cancellation stays in the conversation.
        """
        text = line.removeprefix("/") if line.startswith(ESCAPE) else line
        asked = [*self.messages, {"role": "user", "content": text}]
        said: dict[str, list[str]] = {"reasoning": [], "content": [], "call": []}
        started, first, end = self._clock(), None, None
        try:
            async with contextlib.aclosing(self._source.answer(asked, self.settings)) as events:
                async for event in events:
                    if isinstance(event, Piece):
                        first = self._clock() if first is None else first
                        said[event.part].append(event.text)
                        self.screen.show(event)
                    else:
                        end = event
        except SlipstreamError as error:
            self.screen.end(has_failed=True)
            self._fail(error, hint=self._hint(error))
        except BaseException:
            self.screen.end()
            self._keep(asked, said)
            raise
        else:
            self.screen.end()
            self._keep(asked, said)
            if end is not None:
                self._count(end, started, first)

    def forget(self) -> None:
        """Begin a new conversation."""
        self.messages = list(self._opening)

    def _keep(self, asked: list[dict[str, str]], said: dict[str, list[str]]) -> None:
        answer = {"role": "assistant", "content": "".join(said["content"])}
        reasoning = "".join(said["reasoning"])
        if reasoning:
            answer["reasoning_content"] = reasoning
        # An answer of which nothing was seen would be a turn that nobody remembers.
        if answer["content"] or reasoning:
            self.messages = [*asked, answer]

    def _count(self, end: Ended, started: float, first: float | None) -> None:
        ended = self._clock()
        counts = msgspec.structs.asdict(end)
        stats = AnswerStats(ttft_s=(ended if first is None else first) - started, total_s=ended - started, **counts)
        self.answers.append(stats)
        self.screen.note(f"[{stats.describe()}]")

    def _fail(self, error: SlipstreamError, hint: str = "") -> None:
        self.num_failures += 1
        self.screen.fail(f"{error}{hint}")

    def _hint(self, error: SlipstreamError) -> str:
        """Return what else helps: a conversation that has filled the context can only be left."""
        is_full = isinstance(error, RequestError) and error.code == CONTEXT_CODE
        return "; /reset begins anew" if is_full and self.messages != self._opening else ""


def describe_total(answers: list[AnswerStats]) -> str:
    """Return one line about all answers so far."""
    if not answers:
        return "no answer yet"
    num_tokens = sum(answer.num_output_tokens for answer in answers)
    decode_s = sum(answer.total_s - answer.ttft_s for answer in answers)
    parts = [f"{len(answers)} answers", f"{num_tokens} tokens"]
    if decode_s > 0:
        parts.append(f"{(num_tokens - len(answers)) / decode_s:.1f} tokens/s after the first")
    num_steps = sum(answer.num_verify_steps for answer in answers)
    length = acceptance_length(num_steps, sum(answer.num_emitted for answer in answers))
    if length is not None:
        num_accepted = sum(answer.num_accepted for answer in answers)
        num_drafts = sum(answer.num_draft_tokens for answer in answers)
        parts.append(f"acceptance length {length:.2f} ({num_accepted} of {num_drafts} drafts)")
    return ", ".join(parts)


def _help(dialogue: Dialogue, argument: str) -> None:
    del argument
    width = max(len(usage) for usage, _, _ in COMMANDS.values())
    lines = [f"{usage.ljust(width)}  {text}" for usage, _, text in COMMANDS.values()]
    lines.append("Ctrl-C stops an answer; at the prompt it ends the chat, as Ctrl-D does.")
    dialogue.screen.note("\n".join(lines))


def _reset(dialogue: Dialogue, argument: str) -> None:
    del argument
    dialogue.forget()
    dialogue.screen.note("the conversation is forgotten")


def _think(dialogue: Dialogue, argument: str) -> None:
    if argument not in THINKING:
        raise RequestError(f"/think {argument}: give one of {', '.join(THINKING)}")
    _set(dialogue, thinking=THINKING[argument])


def _temperature(dialogue: Dialogue, argument: str) -> None:
    try:
        value = float(argument)
    except ValueError:
        raise RequestError(f"/temp {argument}: give a number; 0 is greedy") from None
    _set(dialogue, temperature=value)


def _seed(dialogue: Dialogue, argument: str) -> None:
    try:
        value = None if argument == "off" else int(argument)
    except ValueError:
        raise RequestError(f"/seed {argument}: give a whole number, or off") from None
    _set(dialogue, seed=value)


def _set(dialogue: Dialogue, **changes: Any) -> None:
    settings = msgspec.structs.replace(dialogue.settings, **changes)
    settings.sampling()
    dialogue.settings = settings
    seed = "drawn for each answer" if settings.seed is None else settings.seed
    dialogue.screen.note(f"temperature {settings.temperature:g}, seed {seed}, thinking {settings.thinking}")


def _colour(dialogue: Dialogue, argument: str) -> None:
    if argument not in ("on", "off"):
        raise RequestError(f"/colour {argument}: give on or off")
    if argument == "on" and not dialogue.screen.is_terminal:
        raise RequestError("/colour on: colours are for a terminal, and this output is none")
    dialogue.screen.has_colour = argument == "on"
    dialogue.screen.note(LEGEND if argument == "on" else "no colours")


def _stats(dialogue: Dialogue, argument: str) -> None:
    del argument
    dialogue.screen.note(describe_total(dialogue.answers))


def _save(dialogue: Dialogue, argument: str) -> None:
    if not argument:
        raise RequestError("/save needs a file: /save chat.json")
    settings = msgspec.structs.asdict(dialogue.settings)
    text = json.dumps({"messages": dialogue.messages, "settings": settings}, ensure_ascii=False, indent=2)
    try:
        with Path(argument).expanduser().open("x", encoding="utf-8") as file:
            file.write(text + "\n")
    except FileExistsError:
        raise RequestError(f"/save {argument}: the file exists; choose another name") from None
    except OSError as error:
        raise RequestError(f"/save {argument}: {error.strerror}") from None
    dialogue.screen.note(f"saved to {argument}")


def _quit(dialogue: Dialogue, argument: str) -> None:
    del argument
    dialogue.is_over = True


COMMANDS: dict[str, tuple[str, Command, str]] = {
    "/help": ("/help", _help, "list the commands"),
    "/reset": ("/reset", _reset, "forget the conversation"),
    "/think": ("/think on|off|auto", _think, "reason before the answer, or not; auto: as the checkpoint does"),
    "/temp": ("/temp X", _temperature, "sampling temperature; 0 is greedy"),
    "/seed": ("/seed N|off", _seed, "the same seed gives the same text"),
    "/colour": ("/colour on|off", _colour, "colour tokens by origin"),
    "/stats": ("/stats", _stats, "speed and acceptance of all answers so far"),
    "/save": ("/save FILE", _save, "write the conversation as JSON"),
    "/quit": ("/quit", _quit, "end the chat"),
}
"""Name -> usage, what it does, and its help."""
