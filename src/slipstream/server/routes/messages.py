"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request, Response

from slipstream.base.errors import SlipstreamError
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.call import Call
from slipstream.frontend.generation import Generation
from slipstream.server.call_id import call_of
from slipstream.server.disconnect import result_or_leave
from slipstream.server.errors import error_body, status_of
from slipstream.server.protocol.endpoints import COUNT_TOKENS, MESSAGES
from slipstream.server.protocol.messages.errors import messages_error
from slipstream.server.protocol.messages.input import ask_of, grammar_of
from slipstream.server.protocol.messages.output import MessageAnswer
from slipstream.server.protocol.messages.requests import CountTokensRequest, MessagesRequest
from slipstream.server.protocol.messages.responses import MessagesEvent, TokenCount
from slipstream.server.protocol.parse import parse_fields
from slipstream.server.protocol.structured import blaming, field_at_fault
from slipstream.server.protocol.translated import naming
from slipstream.server.routes.context import ServerContext, json_response
from slipstream.server.sse import EventStream, event
from slipstream.wire.sampling_params import SamplingParams


def messages_router(context: ServerContext) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.post(MESSAGES.path)
    async def create(request: Request) -> Response:
        asked = parse_fields(MESSAGES, MessagesRequest, await context.read(request))
        context.check_model(asked.model)
        if not asked.stream:
            return await result_or_leave(request, _whole(context.llm, asked, call_of(request)))
        generation = await result_or_leave(request, _open(context.llm, asked, call_of(request)))
        return EventStream(_events(context.llm, generation), generation.close, tail=b"", on_error=_error_event)

    @router.post(COUNT_TOKENS.path)
    async def count_tokens(request: Request) -> Response:
        asked = parse_fields(COUNT_TOKENS, CountTokensRequest, await context.read(request))
        context.check_model(asked.model)
        grammar_of(asked.output_config)
        ask = ask_of(asked, is_to_answer=False)
        return json_response(TokenCount(await context.llm.count_chat_tokens(ask)))

    return router


async def _open(llm: AsyncLLM, asked: MessagesRequest, call: Call) -> Generation:
    ask, grammar = ask_of(asked), grammar_of(asked.output_config)
    sampling = SamplingParams(
        temperature=asked.temperature,
        top_k=asked.top_k,
        top_p=asked.top_p,
        max_tokens=asked.max_tokens,
        stop=tuple(asked.stop_sequences),
        grammar=grammar,
    )
    field = field_at_fault(ask.tool_choice, None if grammar is None else "output_config")
    with naming({"stop": "stop_sequences"}), blaming(field):
        return await llm.open_chat(ask, sampling, call=call)


async def _whole(llm: AsyncLLM, asked: MessagesRequest, call: Call) -> Response:
    generation = await _open(llm, asked, call)
    answer = MessageAnswer(llm.model_name, generation.stream)
    try:
        async for delta in generation:
            answer.feed(generation.answer.feed(delta))
    finally:
        generation.close()
    return json_response(answer.whole())


async def _events(llm: AsyncLLM, generation: Generation) -> AsyncGenerator[bytes, None]:
    answer = MessageAnswer(llm.model_name, generation.stream)
    async for delta in generation:
        events = answer.feed(generation.answer.feed(delta))
        if events:
            yield b"".join(_event(message) for message in events)


def _event(message: MessagesEvent) -> bytes:
    return event(message, str(type(message).__struct_config__.tag))


def _error_event(error: SlipstreamError) -> bytes:
    return _event(messages_error(error_body(error), status_of(error)))
