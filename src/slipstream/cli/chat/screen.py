"""What a conversation looks like: text as it comes, coloured by where each token came from.

On a terminal, accepted drafts are green, the target's own tokens plain and reasoning dim; without colour, words say
which part it is. In a pipe there is nothing but the answers, a line break after each.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.console import Console

from slipstream.cli.chat.source import Part, Piece
from slipstream.cli.console import make_error_console, show_error

Write = Callable[[str], None]
RESET = "\x1b[0m"
DRAFT_CODE = "32"
REASONING_CODE = "2"
LEGEND = "accepted drafts are green, the target's own tokens plain, reasoning dim"
_LABELS: dict[Part, str] = {"reasoning": "[thinking] ", "content": "[answer] ", "call": "[call] "}
# What a model writes must not move the cursor or talk to the terminal.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Screen:
    """Shows answers on standard output, and everything about them on standard error.

    Args:
        write: writes to standard output at once.
        is_terminal: a reader sits there; otherwise only the text of answers is written.
        has_colour: colour tokens by origin.
        console: for notes; standard error if None.
    """

    def __init__(self, write: Write, *, is_terminal: bool, has_colour: bool, console: Console | None = None) -> None:
        self.has_colour = has_colour
        self.is_terminal = is_terminal
        self._write = write
        self._console = console or make_error_console()
        self._part: Part | None = None
        self._style = ""
        self._is_at_line_start = True
        self._is_part_empty = True

    def show(self, piece: Piece) -> None:
        """Show what one token added."""
        text = piece.text
        if not self.is_terminal:
            # Reasoning is for a reader; a program that reads on wants the answer.
            if piece.part == "content":
                self._put(text)
            return
        text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
        if piece.part != self._part:
            self._begin(piece.part)
        if self._is_part_empty:
            text = text.lstrip("\n")
        if text:
            self._is_part_empty = False
            self._set_style(_style(piece) if self.has_colour else "")
            self._put(text)

    def end(self, *, has_failed: bool = False) -> None:
        """Close an answer, finished or not; the next line begins at its start.

        Args:
            has_failed: there is no answer; in a pipe, which has a line for each, nothing is written for it.
        """
        self._set_style("")
        if not self._is_at_line_start or not (self.is_terminal or has_failed):
            self._put("\n")
        self._part = None
        self._is_at_line_start = True

    def note(self, text: str) -> None:
        """Show a remark to a reader; nothing in a pipe."""
        if self.is_terminal:
            self._console.print(text, style="dim" if self.has_colour else None, markup=False)

    def fail(self, message: str) -> None:
        """Show an error, to whoever reads."""
        show_error(message, self._console)

    def _begin(self, part: Part) -> None:
        self._set_style("")
        if not self._is_at_line_start:
            self._put("\n")
        if not self.has_colour and (self._part is not None or part != "content"):
            self._put(_LABELS[part])
        self._part = part
        self._is_part_empty = True

    def _set_style(self, style: str) -> None:
        if style != self._style:
            self._write(RESET if not style else f"{RESET if self._style else ''}\x1b[{style}m")
            self._style = style

    def _put(self, text: str) -> None:
        if text:
            self._write(text)
            self._is_at_line_start = text.endswith("\n")


def _style(piece: Piece) -> str:
    codes = [REASONING_CODE] if piece.part == "reasoning" else []
    return ";".join([*codes, DRAFT_CODE] if piece.is_draft else codes)
