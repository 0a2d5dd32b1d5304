"""POST /v1/chat/completions."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request, Response

from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.generation import Generation
from slipstream.frontend.stream import Delta
from slipstream.server.answer import chat_logprobs, collect, usage_of, visible
from slipstream.server.disconnect import answer_or_leave
from slipstream.server.protocol.endpoints import CHAT
from slipstream.server.protocol.parse import chat_max_tokens, parse_fields, sampling_of, wants_usage
from slipstream.server.protocol.requests import ChatRequest
from slipstream.server.protocol.responses import (
    UNSET,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatMessage,
    Usage,
)
from slipstream.server.routes.context import ServerContext, json_response
from slipstream.server.sse import EventStream, event
from slipstream.text.messages import parse_messages
from slipstream.text.tokenizer import Tokenizer


def chat_router(context: ServerContext) -> APIRouter:
    """Return the route."""
    router = APIRouter()

    @router.post(CHAT.path)
    async def create(request: Request) -> Response:
        asked = parse_fields(CHAT, ChatRequest, await context.read(request))
        context.check_model(asked.model)
        has_usage = wants_usage(asked)
        if not asked.stream:
            return await answer_or_leave(request, _whole(context.llm, asked))
        generation = await _open(context.llm, asked)
        return EventStream(_Chunks(context.llm, generation, has_usage).events(generation), generation.close)

    return router


async def _open(llm: AsyncLLM, asked: ChatRequest) -> Generation:
    messages = parse_messages(asked.messages)
    sampling = sampling_of(asked, max_tokens=chat_max_tokens(asked), logprobs=0 if asked.logprobs else None)
    return await llm.open_chat(
        messages,
        sampling,
        add_generation_prompt=asked.add_generation_prompt,
        template_kwargs=asked.chat_template_kwargs,
    )


async def _whole(llm: AsyncLLM, asked: ChatRequest) -> Response:
    generation = await _open(llm, asked)
    try:
        answer = await collect(generation)
    finally:
        generation.close()
    choice = ChatChoice(
        message=ChatMessage(content=answer.text),
        finish_reason=answer.finish_reason,
        stop_reason=answer.stop_reason,
        logprobs=chat_logprobs(llm.processor.tokenizer, answer.token_ids, answer.logprobs),
    )
    return json_response(
        ChatCompletion(
            id=_new_id(),
            created=int(time.time()),
            model=llm.model_name,
            choices=[choice],
            usage=usage_of([generation.stream]),
        )
    )


class _Chunks:
    """Makes the chunks of one stream."""

    def __init__(self, llm: AsyncLLM, generation: Generation, has_usage: bool) -> None:
        self._stream = generation.stream
        self._has_usage = has_usage
        self._tokenizer: Tokenizer = llm.processor.tokenizer
        self._model = llm.model_name
        self._id = _new_id()
        self._created = int(time.time())

    async def events(self, generation: Generation) -> AsyncGenerator[bytes, None]:
        yield self._event([ChatChunkChoice(delta=ChatDelta(role="assistant", content=""))])
        async for delta in visible(generation):
            yield self._event([self._choice(delta)])
        if self._has_usage:
            yield self._event([], usage_of([self._stream]))

    def _choice(self, delta: Delta) -> ChatChunkChoice:
        is_last = delta.finish_reason is not None
        return ChatChunkChoice(
            delta=ChatDelta(content=delta.text) if delta.text or not is_last else ChatDelta(),
            finish_reason=delta.finish_reason,
            stop_reason=delta.stop_reason if is_last else UNSET,
            logprobs=chat_logprobs(self._tokenizer, delta.token_ids, delta.logprobs),
        )

    def _event(self, choices: list[ChatChunkChoice], usage: Usage | None = None) -> bytes:
        return event(
            ChatChunk(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=choices,
                usage=usage if self._has_usage else UNSET,
            )
        )


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"
