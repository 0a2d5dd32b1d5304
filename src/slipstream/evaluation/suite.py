"""The evaluation suite: held-out texts, problems, facts and prompts, read from JSON lines.

One line is one object whose `kind` says what it is. Conversations are stored as messages and rendered by the model's
own chat template; `Header.probe` lets a run see whether that template writes what the suite's authors meant. Not here:
how a suite is made.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from slipstream.base.errors import ConfigError

VERSION = 1
BUNDLED = "bundled"
Split = Literal["train", "test"]
Templates = Literal["seen", "held-out"]
Messages = tuple[dict[str, Any], ...]


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="suite", forbid_unknown_fields=True):
    """What the suite is; the first line of the file.

    Args:
        name: shown in results.
        version: of the file's layout.
        seed: what made it.
        probe: a conversation.
        probe_text: what the intended chat template makes of it.
        notices: sources and licences of the texts.
    """

    name: str
    version: int
    seed: int
    probe: Messages
    probe_text: str
    notices: tuple[str, ...] = ()


class Text(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="text", forbid_unknown_fields=True):
    """A document that needs no chat template."""

    split: Split
    domain: str
    text: str


class Dialogue(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="dialogue", forbid_unknown_fields=True):
    """A complete conversation, answers included."""

    split: Split
    domain: str
    messages: Messages
    tools: Messages = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="problem", forbid_unknown_fields=True):
    """A word problem.

    Args:
        num_steps: operations that its solution takes.
        templates: whether training saw the problem's form.
        messages: the conversation up to the question.
        thinking_mode: variable of the chat template.
        expected: the right number.
    """

    num_steps: int
    templates: Templates
    messages: Messages
    thinking_mode: str
    expected: str


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence, the question about it and the words that a right answer holds."""

    text: str
    question: str
    expected: str


class Needle(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="needle", forbid_unknown_fields=True):
    """A fact to find in a long text among others of its kind.

    Args:
        opening: first line of the message that holds the text.
        fact: what is asked for.
        others: facts of the same kind that stand in the text too.
    """

    opening: str
    fact: Fact
    others: tuple[Fact, ...] = ()


class Filler(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="filler", forbid_unknown_fields=True):
    """An ordinary sentence for long texts."""

    text: str


class Prompt(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="prompt", forbid_unknown_fields=True):
    """A conversation to answer, or a text to continue (then `messages` is empty)."""

    domain: str
    messages: Messages = ()
    tools: Messages = ()
    thinking_mode: str | None = None
    text: str = ""


Row = Header | Text | Dialogue | Problem | Needle | Filler | Prompt


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of a suite, by kind, in the order of the file."""

    header: Header
    texts: tuple[Text, ...] = ()
    dialogues: tuple[Dialogue, ...] = ()
    problems: tuple[Problem, ...] = ()
    needles: tuple[Needle, ...] = ()
    fillers: tuple[str, ...] = ()
    prompts: tuple[Prompt, ...] = ()


def read_suite(path: Path) -> Suite:
    """Read a suite from a .jsonl or .jsonl.xz file; blank lines are skipped.

    Raises:
        ConfigError: the file is absent or cannot be unpacked, a line is no row of a suite, or the header is missing.
    """
    if not path.is_file():
        raise ConfigError(f"no evaluation suite at {path}: give a .jsonl or .jsonl.xz file, or {BUNDLED}")
    try:
        raw = path.read_bytes()
        lines = (lzma.decompress(raw) if path.suffix == ".xz" else raw).splitlines()
    except (OSError, lzma.LZMAError) as error:
        raise ConfigError(f"the evaluation suite {path} cannot be read ({error}): write it again") from None
    return parse_suite(lines, str(path))


def parse_suite(lines: Iterable[bytes], where: str) -> Suite:
    """Return the suite of these lines; see `read_suite`."""
    decoder = msgspec.json.Decoder(Row)
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{where}:{number}: not a row of an evaluation suite ({error})") from None
    return _build(rows, where)


def _build(rows: Sequence[Row], where: str) -> Suite:
    headers = [row for row in rows if isinstance(row, Header)]
    if len(headers) != 1:
        raise ConfigError(f"{where}: {len(headers)} rows of kind suite; give exactly one")
    if headers[0].version != VERSION:
        raise ConfigError(f"{where}: layout version {headers[0].version}; this release reads {VERSION}: make it anew")
    return Suite(
        header=headers[0],
        texts=tuple(row for row in rows if isinstance(row, Text)),
        dialogues=tuple(row for row in rows if isinstance(row, Dialogue)),
        problems=tuple(row for row in rows if isinstance(row, Problem)),
        needles=tuple(row for row in rows if isinstance(row, Needle)),
        fillers=tuple(row.text for row in rows if isinstance(row, Filler)),
        prompts=tuple(row for row in rows if isinstance(row, Prompt)),
    )
