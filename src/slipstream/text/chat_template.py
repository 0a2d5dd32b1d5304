"""Messages to a prompt, by the checkpoint's own chat template: the one door to jinja2.

The template is the checkpoint's, never a request's, and runs in a sandbox all the same. What users wrote cannot
become a control token (see control).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import msgspec
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from slipstream.base.errors import CheckpointError, RequestError
from slipstream.text.checkpoint_files import read_object, read_text
from slipstream.text.control import ControlText, Marks
from slipstream.text.reasoning.mode import generation_prompt_tail
from slipstream.text.tokenizer import Tokenizer

RESERVED_KWARGS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "chat_template", "self"})
"""Template variables that `chat_template_kwargs` may not set: request fields of their own, and the template itself.

The functions of a template (`raise_exception`, `strftime_now`, `range`, …) are reserved too.
"""


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}`: a mark for training; the content is rendered as it stands."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _TemplateRefusal(jinja2.TemplateError):
    """The template called raise_exception: the conversation is not one it can render."""


class _UserText(str):
    """Text with stand-ins that a template prints as such, but compares by what the user wrote.

    Without it a variable like "no_think" would be equal to nothing that the template compares it with.
    """

    __slots__ = ("_written",)

    def __new__(cls, written: str, marks: Marks) -> _UserText:
        text = super().__new__(cls, marks.hide(written))
        text._written = written
        return text

    def __eq__(self, other: object) -> bool:
        return self._written == (other._written if isinstance(other, _UserText) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._written)


class RenderedChat(msgspec.Struct, frozen=True):
    """A conversation as the model reads it.

    Args:
        token_ids: the prompt.
        tail: what the template wrote behind the conversation for the answer to go on from; None if it changes more
            than the end for it.
    """

    token_ids: list[int]
    tail: str | None


class ChatTemplate:
    """The chat template of one checkpoint.

    Args:
        source: the template.
        tokenizer: whose control tokens the template writes; its named tokens are variables of the template.

    Attributes:
        variables: names that the template reads and does not set itself.

    Raises:
        CheckpointError: the source is not a template.
    """

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlock]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
            self.variables = frozenset(meta.find_undeclared_variables(environment.parse(source)))
        except jinja2.TemplateError as error:
            raise CheckpointError(f"the chat template does not compile: {error}") from error
        self._reserved = RESERVED_KWARGS | tokenizer.named_tokens.keys() | environment.globals.keys()
        self._source = source
        self._tokenizer = tokenizer
        self._control = ControlText(tokenizer.control_ids)

    @classmethod
    def find(cls, folder: Path | str, tokenizer: Tokenizer) -> ChatTemplate | None:
        """Return the template of a checkpoint folder, or None when it has none.

        Looked for in this order: chat_template.jinja, chat_template.json, tokenizer_config.json.

        Raises:
            CheckpointError: a file is broken, or the template does not compile.
        """
        folder = Path(folder)
        if (folder / "chat_template.jinja").exists():
            return cls(read_text(folder / "chat_template.jinja"), tokenizer)
        for name in ("chat_template.json", "tokenizer_config.json"):
            if (folder / name).exists():
                source = read_object(folder / name).get("chat_template")
                if isinstance(source, list):
                    named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
                    source = named.get("default")
                if isinstance(source, str):
                    return cls(source, tokenizer)
        return None

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """Return the token ids of a conversation.

        Args:
            messages: as `messages.parse_messages` returns them.
            add_generation_prompt: end with the opening of the assistant's turn.
            template_kwargs: further variables of the template, such as thinking_mode.
            tools: what the model is told that it can call, as `Tool.for_template` returns them.

        Raises:
            RequestError: the template refuses the conversation or fails on it, or a variable is not allowed.
        """
        rendered, marks = self._render(messages, add_generation_prompt, template_kwargs, tools)
        return self._tokenizer.encode_marked(rendered, marks.restore)

    def encode_for_answer(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> RenderedChat:
        """Return the token ids of a conversation and how it ends; as `encode`."""
        rendered, marks = self._render(messages, add_generation_prompt, template_kwargs, tools)
        tail: str | None = ""
        if add_generation_prompt:
            tail = generation_prompt_tail(rendered, self._render(messages, False, template_kwargs, tools)[0])
        return RenderedChat(self._tokenizer.encode_marked(rendered, marks.restore), tail)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Return the text of a conversation, to look at; `encode` knows more than this text says."""
        rendered, marks = self._render(messages, add_generation_prompt, template_kwargs, tools)
        return marks.show(rendered)

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        template_kwargs: Mapping[str, Any] | None,
        tools: Sequence[Mapping[str, Any]],
    ) -> tuple[str, Marks]:
        extra = dict(template_kwargs or {})
        self._check_kwargs(extra)
        marks = self._control.marks([self._source, *strings_of([*messages, *tools, extra])])
        try:
            rendered = self._template.render(
                **self._tokenizer.named_tokens,
                **{name: _hidden_value(value, marks) for name, value in extra.items()},
                messages=[_hidden(message, marks) for message in messages],
                tools=[_hidden_tool(tool, marks) for tool in tools] or None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
            )
        except _TemplateRefusal as error:
            reason = marks.show(str(error))
            raise RequestError(f"the chat template refused the messages: {reason}", param="messages") from error
        except Exception as error:
            reason = marks.show(f"{type(error).__name__}: {error}")
            raise RequestError(f"the chat template failed on these messages ({reason})", param="messages") from error
        return rendered, marks

    def _check_kwargs(self, extra: Mapping[str, Any]) -> None:
        taken = sorted(self._reserved & extra.keys())
        if taken:
            raise RequestError(
                f"chat_template_kwargs may not set {', '.join(taken)}: leave it out, or use the request's own fields",
                param="chat_template_kwargs",
            )
        if any(self._control.occurs_in(text) for text in strings_of(extra)):
            raise RequestError(
                "chat_template_kwargs holds the text of a control token: leave it out", param="chat_template_kwargs"
            )


def _hidden(message: Mapping[str, Any], marks: Marks) -> dict[str, Any]:
    hide = marks.hide_own_words if message["role"] == "assistant" else marks.hide
    hidden: dict[str, Any] = {"role": message["role"]}
    for field, value in message.items():
        if field == "tool_calls":
            hidden[field] = [_hidden_tool(call, marks) for call in value]
        elif field != "role":
            hidden[field] = hide(value)
    return hidden


def _hidden_tool(tool: Mapping[str, Any], marks: Marks) -> dict[str, Any]:
    """Hide what a caller wrote in a tool or a call, and leave the names of their fields to the template."""
    hidden = {field: _hidden_value(value, marks) for field, value in tool.items()}
    hidden["function"] = {field: _hidden_value(value, marks) for field, value in tool["function"].items()}
    return hidden


def _hidden_value(value: Any, marks: Marks) -> Any:
    if isinstance(value, str):
        return _UserText(value, marks)
    if isinstance(value, Mapping):
        return {_hidden_value(key, marks): _hidden_value(part, marks) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden_value(part, marks) for part in value]
    return value


def strings_of(value: object) -> list[str]:
    """Return every string in a value of JSON, keys of objects included."""
    found: list[str] = []
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, Mapping):
            left += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple):
            left += part
    return found


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise _TemplateRefusal(message)
