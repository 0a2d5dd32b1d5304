"""A request of /v1/chat/completions in the shape that every protocol shares. Not here: its fields (chat_requests)."""

from __future__ import annotations

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.frontend.chat import ChatAsk, check_variables
from slipstream.server.protocol.chat_requests import ChatRequest, chat_max_tokens, chat_names
from slipstream.server.protocol.parse import sampling_of
from slipstream.server.protocol.structured import field_at_fault, grammar_field
from slipstream.server.protocol.translated import naming
from slipstream.text.messages import parse_messages
from slipstream.text.tools.schema import parse_tool_choice, parse_tools
from slipstream.wire.sampling_params import SamplingParams

_EFFORT = "reasoning_effort"


def ask_of(asked: ChatRequest, template_variables: frozenset[str]) -> ChatAsk:
    """Return the conversation.

    Args:
        asked: the accepted fields.
        template_variables: names that the chat template reads.

    Raises:
        RequestError: messages, tools or the choice among them are not accepted.
        UnsupportedFeature: an effort or a variable that the template does not read.
    """
    tools = parse_tools(asked.tools)
    kwargs = dict(asked.chat_template_kwargs)
    check_variables(kwargs, template_variables)
    if asked.reasoning_effort is not None:
        if _EFFORT not in template_variables:
            raise UnsupportedFeature(
                "reasoning_effort: this checkpoint's chat template does not read it; leave it out, and choose whether "
                "the model thinks with chat_template_kwargs.thinking_mode",
                param=_EFFORT,
                code="unsupported_feature",
            )
        if kwargs.setdefault(_EFFORT, asked.reasoning_effort) != asked.reasoning_effort:
            raise RequestError("reasoning_effort and chat_template_kwargs.reasoning_effort differ", param=_EFFORT)
    return ChatAsk(
        messages=parse_messages(asked.messages),
        tools=tools,
        tool_choice=parse_tool_choice(asked.tool_choice, tools),
        template_kwargs=kwargs,
        add_generation_prompt=asked.add_generation_prompt,
        parallel_tool_calls=asked.parallel_tool_calls,
    )


def chat_sampling(asked: ChatRequest) -> SamplingParams:
    """Return the sampling parameters.

    Raises:
        RequestError: a value outside its range, or fields that contradict each other.
        UnsupportedFeature: an option that is not served.
    """
    if asked.top_logprobs and not asked.logprobs:
        raise RequestError("top_logprobs without logprobs: set logprobs to true", param="top_logprobs")
    if asked.prompt_logprobs is not None and asked.stream:
        raise RequestError("prompt_logprobs with stream: ask for a whole answer", param="prompt_logprobs")
    num_top = (asked.top_logprobs or 0) if asked.logprobs else None
    with naming(chat_names(asked)):
        return sampling_of(asked, max_tokens=chat_max_tokens(asked), logprobs=num_top)


def constraint_field(asked: ChatRequest, ask: ChatAsk) -> str | None:
    """Return the field that an error about the constraint of the text is about, or None without a constraint."""
    return field_at_fault(ask.tool_choice, grammar_field(asked))
