"""A conversation that wants an answer, as every protocol hands it over, and what becomes of it before the engine.

Not here: HTTP shapes, and reading the answer (answer_stream).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.frontend.answer_stream import AnswerStream
from slipstream.text.chat_template import RESERVED_KWARGS, strings_of
from slipstream.text.reasoning.mode import MODE_NAMES, State, ThinkingMode
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.constrain import call_grammar, text_grammar
from slipstream.text.tools.schema import ToolChoice, ToolSet
from slipstream.text.tools.syntax import NAMESPACE
from slipstream.wire.sampling_params import SamplingParams

_DEFAULT = " (the default when tools are given)"


class ChatAsk(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation, the tools that may be called in it, and how it is rendered.

    Args:
        messages: as `text.messages.parse_messages` returns them.
        tools: what the model may call.
        tool_choice: whether it may, must not or must. With `none` no call is looked for in the answer; the model still
            sees the tools, so that the prompt of a conversation keeps its beginning whatever the choice.
        template_kwargs: further variables of the chat template, thinking modes among them.
        add_generation_prompt: end with the opening of the assistant's turn.
        parallel_tool_calls: whether an answer may call more than once; if not, further calls are not written where a
            call is forced, and else not reported.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: ToolSet = ToolSet()
    tool_choice: ToolChoice = ToolChoice("none")
    template_kwargs: Mapping[str, Any] = {}
    add_generation_prompt: bool = True
    parallel_tool_calls: bool = True

    @property
    def num_chars(self) -> int:
        """Characters of all texts in it."""
        return sum(map(len, strings_of([*self.messages, *(tool.for_template() for tool in self.tools.tools)])))


class PreparedChat(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that is ready for the engine.

    Args:
        prompt_token_ids: the rendered conversation.
        sampling: the caller's, with the grammar of a call that must be made.
        starts_in: what the first token of the answer belongs to.
        parameters: the schemas of the functions whose calls are looked for; None if none are.
        max_calls: most calls that the answer reports; None is any number.
    """

    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    starts_in: State
    parameters: Mapping[str, Mapping[str, Any]] | None = None
    max_calls: int | None = None

    def answer_stream(self) -> AnswerStream:
        """Return what reads one answer to this conversation."""
        return AnswerStream(self.starts_in, self.parameters, max_calls=self.max_calls)


def sampling_for(ask: ChatAsk, sampling: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """Return the caller's parameters, with what binds the calls of the answer.

    A call that must be made has a grammar; so has an answer with tools that are strict, whose text is free up to the
    marker of a call. With `none` that marker is forbidden.

    Args:
        ask: the conversation.
        sampling: the caller's parameters.
        tokenizer: writes the tags of a call.

    Raises:
        RequestError: the answer is constrained to something else than the calls that it may or must make.
        UnsupportedFeature: the syntax of calls cannot carry what the tools ask for.
    """
    mode = ask.tool_choice.mode
    if sampling.grammar is not None and mode != "none":
        raise RequestError(
            f"the answer's text is constrained, and tool_choice={mode!r}{_DEFAULT if mode == 'auto' else ''} allows or "
            "asks for a call instead of it: set tool_choice to 'none' to get the constrained text, or drop "
            "response_format (or whatever else constrains it) to get calls",
            param="tool_choice",
        )
    if mode == "none":
        shows_calls = bool(ask.tools.tools) or any(message.get("tool_calls") for message in ask.messages)
        return _without_calls(sampling, tokenizer) if shows_calls else sampling
    if mode == "auto" and not any(tool.is_strict for tool in ask.tools.tools):
        return sampling
    grammar = call_grammar(ask.tools, ask.tool_choice, tokenizer, is_parallel=ask.parallel_tool_calls)
    return msgspec.structs.replace(sampling, grammar=grammar)


def _without_calls(sampling: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """Return parameters with which a model that sees tools or calls begins none; a constraint says enough by itself."""
    if sampling.grammar is not None:
        return sampling
    if NAMESPACE in tokenizer.control_ids:
        return msgspec.structs.replace(sampling, bad_words=(*sampling.bad_words, NAMESPACE))
    return msgspec.structs.replace(sampling, grammar=text_grammar())


def check_variables(given: Mapping[str, Any], variables: frozenset[str]) -> None:
    """Refuse variables that would change nothing, because the chat template does not read them.

    Args:
        given: the caller's; null counts as absent. A thinking mode is understood under each of its names.
        variables: names that the template reads.

    Raises:
        UnsupportedFeature: it names the first one, and those that are read.
    """
    read = variables | MODE_NAMES if variables & MODE_NAMES else variables
    for name, value in given.items():
        if value is not None and name not in read | RESERVED_KWARGS:
            known = ", ".join(sorted(read - RESERVED_KWARGS)) or "none that a request can set"
            raise UnsupportedFeature(
                f"chat_template_kwargs.{name[:60]}: this checkpoint's chat template does not read it: leave it out; "
                f"variables that it reads: {known}",
                param="chat_template_kwargs",
                code="unsupported_feature",
            )


def render_kwargs(given: Mapping[str, Any], mode: ThinkingMode | None, variables: frozenset[str]) -> dict[str, Any]:
    """Return the template's variables with the thinking mode under every name that the template reads.

    Args:
        given: the caller's variables.
        mode: the mode to render with; None leaves it to the template.
        variables: names that the template reads.
    """
    if mode is None:
        return dict(given)
    names: dict[str, Any] = {"thinking_mode": mode}
    if mode != "adaptive":
        names["enable_thinking"] = mode == "enabled"
    return dict(given) | {name: value for name, value in names.items() if name in variables}
