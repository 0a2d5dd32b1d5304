"""POST /v1/responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request, Response

from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.call import Call
from slipstream.frontend.generation import Generation
from slipstream.server.call_id import call_of
from slipstream.server.disconnect import result_or_leave
from slipstream.server.protocol.endpoints import RESPONSES
from slipstream.server.protocol.parse import parse_fields
from slipstream.server.protocol.response_api.input import ask_of, grammar_of
from slipstream.server.protocol.response_api.output import ResponseAnswer
from slipstream.server.protocol.response_api.requests import ResponseRequest
from slipstream.server.protocol.response_api.responses import ResponseEvent
from slipstream.server.protocol.structured import blaming, field_at_fault
from slipstream.server.protocol.translated import naming
from slipstream.server.routes.context import ServerContext, json_response
from slipstream.server.sse import EventStream, event
from slipstream.wire.sampling_params import SamplingParams


def response_api_router(context: ServerContext) -> APIRouter:
    """Return the route."""
    router = APIRouter()

    @router.post(RESPONSES.path)
    async def create(request: Request) -> Response:
        asked = parse_fields(RESPONSES, ResponseRequest, await context.read(request))
        context.check_model(asked.model)
        if not asked.stream:
            return await result_or_leave(request, _whole(context.llm, asked, call_of(request)))
        generation, answer = await result_or_leave(request, _open(context.llm, asked, call_of(request)))
        return EventStream(
            _events(generation, answer),
            generation.close,
            tail=b"",
            on_error=lambda error: _event(answer.fail(error)),
        )

    return router


async def _open(llm: AsyncLLM, asked: ResponseRequest, call: Call) -> tuple[Generation, ResponseAnswer]:
    ask, grammar = ask_of(asked), grammar_of(asked.text)
    sampling = SamplingParams(
        temperature=asked.temperature,
        top_k=asked.top_k,
        top_p=asked.top_p,
        seed=asked.seed,
        max_tokens=asked.max_output_tokens,
        grammar=grammar,
    )
    with (
        naming({"max_tokens": "max_output_tokens"}),
        blaming(field_at_fault(ask.tool_choice, None if grammar is None else "text")),
    ):
        generation = await llm.open_chat(ask, sampling, call=call)
    return generation, ResponseAnswer(asked, ask, llm.model_name, generation.stream)


async def _whole(llm: AsyncLLM, asked: ResponseRequest, call: Call) -> Response:
    generation, answer = await _open(llm, asked, call)
    try:
        async for delta in generation:
            answer.feed(generation.answer.feed(delta))
    finally:
        generation.close()
    return json_response(answer.whole())


async def _events(generation: Generation, answer: ResponseAnswer) -> AsyncGenerator[bytes, None]:
    yield b"".join(_event(message) for message in answer.begin())
    async for delta in generation:
        events = answer.feed(generation.answer.feed(delta))
        if events:
            yield b"".join(_event(message) for message in events)


def _event(message: ResponseEvent) -> bytes:
    return event(message, str(type(message).__struct_config__.tag))
