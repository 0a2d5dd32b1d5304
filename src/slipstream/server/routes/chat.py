"""POST /v1/chat/completions: n choices of one conversation."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Sequence

from fastapi import APIRouter, Request, Response

from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.call import Call
from slipstream.frontend.generation import Generation
from slipstream.frontend.stream import Delta
from slipstream.server.answer import join, prompt_logprobs_of, speculation_of, usage_of
from slipstream.server.call_id import call_of
from slipstream.server.chat_choices import ChatChoiceWriter, ShownChat
from slipstream.server.disconnect import result_or_leave
from slipstream.server.merge import merge
from slipstream.server.protocol.chat_input import ask_of, chat_sampling, constraint_field
from slipstream.server.protocol.chat_requests import ChatRequest, chat_names
from slipstream.server.protocol.chat_responses import ChatChunk, ChatChunkChoice, ChatCompletion
from slipstream.server.protocol.endpoints import CHAT
from slipstream.server.protocol.parse import parse_fields, wants_running_usage, wants_usage
from slipstream.server.protocol.responses import UNSET, RunningUsage, UnsetType, Usage
from slipstream.server.protocol.structured import blaming
from slipstream.server.protocol.translated import naming
from slipstream.server.routes.context import ServerContext, json_response
from slipstream.server.sse import EventStream, event

_MAX_ENTRIES = 10_000
"""Tokens that are written in the event loop; more would let other streams stand still."""


def chat_router(context: ServerContext) -> APIRouter:
    """Return the route."""
    router = APIRouter()

    @router.post(CHAT.path)
    async def create(request: Request) -> Response:
        asked = parse_fields(CHAT, ChatRequest, await context.read(request))
        context.check_model(asked.model)
        has_usage = wants_usage(asked)
        if not asked.stream:
            return await result_or_leave(request, _whole(context.llm, asked, call_of(request)))
        chat = await result_or_leave(request, _open(context.llm, asked, call_of(request)))
        return EventStream(chat.events(has_usage, has_running=wants_running_usage(asked)), chat.close)

    return router


async def _open(llm: AsyncLLM, asked: ChatRequest, call: Call) -> _Chat:
    ask, sampling = ask_of(asked, llm.processor.template_variables), chat_sampling(asked)
    with naming(chat_names(asked)), blaming(constraint_field(asked, ask)):
        return _Chat(llm, asked, await llm.open_chat_choices(ask, sampling, call=call))


async def _whole(llm: AsyncLLM, asked: ChatRequest, call: Call) -> Response:
    chat = await _open(llm, asked, call)
    try:
        answers = await asyncio.gather(*(_deltas(generation) for generation in chat.generations))
    finally:
        chat.close()
    num_tokens = sum(len(delta.token_ids) for deltas in answers for delta in deltas)
    if num_tokens * (1 + (asked.top_logprobs or 0)) > _MAX_ENTRIES:
        return await asyncio.to_thread(lambda: json_response(chat.whole(answers)))
    return json_response(chat.whole(answers))


async def _deltas(generation: Generation) -> list[Delta]:
    return [delta async for delta in generation]


class _Chat:
    """The requests of one call, and what writes their choices."""

    def __init__(self, llm: AsyncLLM, asked: ChatRequest, generations: Sequence[Generation]) -> None:
        self.generations = generations
        self._asked = asked
        self._tokenizer = llm.processor.tokenizer
        self._model = llm.model_name
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        shown = ShownChat(
            has_reasoning=asked.include_reasoning,
            has_ids=asked.return_token_ids,
            has_origins=asked.return_token_origins,
            as_ids=asked.return_tokens_as_token_ids,
        )
        self._writers = [
            ChatChoiceWriter(self._tokenizer, shown, generation.answer, index)
            for index, generation in enumerate(generations)
        ]

    def close(self) -> None:
        """End what still runs."""
        for generation in self.generations:
            generation.close()

    @property
    def _usage(self) -> Usage:
        num_reasoning_tokens = sum(generation.answer.num_reasoning_tokens for generation in self.generations)
        streams = [generation.stream for generation in self.generations]
        return usage_of(streams, len(streams), num_reasoning_tokens)

    @property
    def _prompt(self) -> tuple[int, ...]:
        return self.generations[0].stream.request.prompt_token_ids

    def whole(self, answers: Sequence[Sequence[Delta]]) -> ChatCompletion:
        """Return the whole answer; the deltas are in the order of the requests."""
        joined = [join(deltas) for deltas in answers]
        first = joined[0]
        has_prompt = self._asked.prompt_logprobs is not None
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[
                writer.whole(deltas, one) for writer, deltas, one in zip(self._writers, answers, joined, strict=True)
            ],
            usage=self._usage,
            prompt_token_ids=list(self._prompt) if self._asked.return_token_ids else UNSET,
            prompt_logprobs=prompt_logprobs_of(
                self._tokenizer, self._prompt, first.prompt_logprobs, first.prompt_top_logprobs
            )
            if has_prompt
            else UNSET,
        )

    async def events(self, has_usage: bool, *, has_running: bool = False) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a stream, one choice each, and the usage if it was asked for.

        Args:
            has_usage: the last chunk carries the usage.
            has_running: every other chunk carries what its choice has cost so far.
        """
        num_tokens = [0] * len(self._writers)

        def usage(place: int) -> RunningUsage | UnsetType | None:
            return self._running_usage(num_tokens[place]) if has_running else None if has_usage else UNSET

        for place, writer in enumerate(self._writers):
            has_ids = self._asked.return_token_ids and not place
            yield self._chunk([writer.begin()], usage(place), has_ids=has_ids)
        async with contextlib.aclosing(merge([_iterate(generation) for generation in self.generations])) as deltas:
            async for place, delta in deltas:
                piece = self._writers[place].piece(delta)
                num_tokens[place] += len(delta.token_ids)
                if piece is not None:
                    yield self._chunk([piece], usage(place))
        if has_usage:
            yield self._chunk([], self._usage)

    def _running_usage(self, num_tokens: int) -> RunningUsage:
        num_prompt_tokens = len(self._prompt)
        return RunningUsage(
            prompt_tokens=num_prompt_tokens,
            completion_tokens=num_tokens,
            total_tokens=num_prompt_tokens + num_tokens,
        )

    def _chunk(
        self, choices: list[ChatChunkChoice], usage: RunningUsage | UnsetType | None, *, has_ids: bool = False
    ) -> bytes:
        has_counts = self._asked.return_token_origins
        return event(
            ChatChunk(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=choices,
                usage=usage,
                speculation=speculation_of([one.stream for one in self.generations]) if has_counts else UNSET,
                prompt_token_ids=list(self._prompt) if has_ids else UNSET,
            )
        )


async def _iterate(generation: Generation) -> AsyncGenerator[Delta, None]:
    async for delta in generation:
        yield delta
