"""The `chat` command: flags, lines from a terminal or a pipe, Ctrl-C."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from typing import Annotated

import typer

from slipstream.base.errors import ConfigError
from slipstream.cli.arguments import ENGINE_SECTIONS, given_options, with_options
from slipstream.cli.chat.dialogue import Dialogue
from slipstream.cli.chat.local import LocalSource
from slipstream.cli.chat.remote import RemoteSource
from slipstream.cli.chat.screen import LEGEND, Screen
from slipstream.cli.chat.source import THINKING, ChatSource, Settings
from slipstream.cli.client_key import API_KEY_OPTION, client_key
from slipstream.cli.generate import write_now
from slipstream.cli.settings import settle
from slipstream.config.options import Options

PROMPT = "you> "
EXIT_FAILED = 1


@with_options(ENGINE_SECTIONS)
def chat(
    options: Options,
    url: Annotated[
        str | None, typer.Option("--url", help="Chat with a server that runs already, http://HOST:PORT.")
    ] = None,
    api_key: Annotated[str | None, API_KEY_OPTION] = None,
    system: Annotated[str | None, typer.Option("--system", help="Instructions that the chat begins with.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Most tokens per answer.  [default: the context]")
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", metavar="X", help="0 is greedy.")] = 0.0,
    request_seed: Annotated[
        int | None, typer.Option("--request-seed", metavar="N", help="The same seed gives the same text.")
    ] = None,
    think: Annotated[
        str, typer.Option("--think", metavar="auto|on|off", help="Reason before the answer; auto: as the checkpoint.")
    ] = "auto",
    colour: Annotated[
        bool | None,
        typer.Option("--colour/--no-colour", help="Colour tokens by origin.  [default: on, unless NO_COLOR]"),
    ] = None,
) -> None:
    """Chat on the terminal, with a model of this machine or a server elsewhere.

    Shows which tokens were drafted, and speed and acceptance after each answer; /help lists the commands. Without a
    terminal, every line of standard input is a message, and only answers are written.
    """
    if think not in THINKING:
        raise ConfigError(f"--think {think} is not allowed: give one of {', '.join(THINKING)}")
    settings = Settings(temperature=temperature, seed=request_seed, max_tokens=max_tokens, thinking=THINKING[think])
    settings.sampling()
    check_place(options, url=url, api_key=api_key)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    screen = Screen(write_now, is_terminal=is_terminal, has_colour=is_terminal and wants_colour(colour))
    with asyncio.Runner() as runner:
        source: ChatSource = runner.run(_connect(options, url, api_key))
        try:
            dialogue = Dialogue(source, screen, settings, system=system)
            _greet(source, screen)
            _converse(dialogue, runner)
        finally:
            runner.run(source.close())
    if dialogue.num_failures and not is_terminal:
        raise typer.Exit(EXIT_FAILED)


def check_place(options: Options, *, url: str | None, api_key: str | None) -> None:
    """Refuse to be told of two places that answer.

    Raises:
        ConfigError: a server and options of an engine, or a key and no server.
    """
    given = given_options(options)
    if url is not None and given:
        raise ConfigError(f"--url together with {', '.join(given)}: a server has its own; give one or the other")
    if url is None and api_key is not None:
        raise ConfigError("--api-key is for a server: give its --url too")


def wants_colour(asked: bool | None) -> bool:
    """Return whether a terminal gets colours: as asked, else unless the environment says that it shows none."""
    if asked is not None:
        return asked
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


async def _connect(options: Options, url: str | None, api_key: str | None) -> ChatSource:
    if url is None:
        return await LocalSource.start(settle(options))
    source = RemoteSource(url, api_key=client_key(api_key))
    try:
        await source.find_model()
    except BaseException:
        await source.close()
        raise
    return source


def _greet(source: ChatSource, screen: Screen) -> None:
    screen.note(f"{source.describe()}\n/help lists the commands, Ctrl-C stops an answer")
    if screen.has_colour:
        screen.note(LEGEND)


def _converse(dialogue: Dialogue, runner: asyncio.Runner) -> None:
    if dialogue.screen.is_terminal:
        # Line editing and history; without the module, lines are read as they are.
        importlib.import_module("readline")
    while not dialogue.is_over:
        line = _read_line(dialogue.screen)
        if line is None:
            return
        if not line.strip() or dialogue.run_command(line.strip()):
            continue
        try:
            runner.run(dialogue.say(line))
        except KeyboardInterrupt:
            if not dialogue.screen.is_terminal:
                raise
            dialogue.screen.note("[stopped]")


def _read_line(screen: Screen) -> str | None:
    """Return the next line without its end, or None when there is none, or the reader wants to leave."""
    if not screen.is_terminal:
        line = sys.stdin.buffer.readline().decode("utf-8", errors="replace")
        return line.rstrip("\r\n") if line else None
    try:
        return input(PROMPT)
    except (EOFError, KeyboardInterrupt):
        # The next prompt of the shell begins on a line of its own.
        sys.stdout.write("\n")
        return None
