"""POST /v1/completions: one choice per prompt."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request, Response

from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.generation import Generation
from slipstream.server.answer import collect, completion_logprobs, usage_of, visible
from slipstream.server.disconnect import answer_or_leave
from slipstream.server.merge import merge
from slipstream.server.protocol.endpoints import COMPLETIONS
from slipstream.server.protocol.parse import parse_fields, parse_prompts, sampling_of, wants_usage
from slipstream.server.protocol.requests import CompletionRequest
from slipstream.server.protocol.responses import UNSET, Completion, CompletionChoice, Usage
from slipstream.server.routes.context import ServerContext, json_response
from slipstream.server.sse import EventStream, event


def completions_router(context: ServerContext) -> APIRouter:
    """Return the route."""
    router = APIRouter()

    @router.post(COMPLETIONS.path)
    async def create(request: Request) -> Response:
        asked = parse_fields(COMPLETIONS, CompletionRequest, await context.read(request))
        context.check_model(asked.model)
        has_usage = wants_usage(asked)
        if not asked.stream:
            return await answer_or_leave(request, _whole(context.llm, asked))
        generations = await _open(context.llm, asked)
        return EventStream(_events(context.llm, generations, has_usage), lambda: _close(generations))

    return router


async def _open(llm: AsyncLLM, asked: CompletionRequest) -> list[Generation]:
    """Submit every prompt, or none."""
    prompts = parse_prompts(
        asked.prompt, max_prompts=llm.max_in_flight, max_prompt_tokens=llm.processor.facts.max_model_len
    )
    sampling = sampling_of(asked, max_tokens=asked.max_tokens, logprobs=asked.logprobs)
    generations: list[Generation] = []
    try:
        for prompt in prompts:
            generations.append(await llm.open(prompt, sampling, add_special_tokens=asked.add_special_tokens))
    except BaseException:
        _close(generations)
        raise
    return generations


def _close(generations: list[Generation]) -> None:
    for generation in generations:
        generation.close()


async def _whole(llm: AsyncLLM, asked: CompletionRequest) -> Response:
    generations = await _open(llm, asked)
    try:
        answers = await asyncio.gather(*(collect(generation) for generation in generations))
    finally:
        _close(generations)
    tokenizer = llm.processor.tokenizer
    choices = [
        CompletionChoice(
            index=index,
            text=answer.text,
            finish_reason=answer.finish_reason,
            stop_reason=answer.stop_reason,
            logprobs=completion_logprobs(tokenizer, answer.token_ids, answer.logprobs)[0],
        )
        for index, answer in enumerate(answers)
    ]
    usage = usage_of([generation.stream for generation in generations])
    return json_response(
        Completion(id=_new_id(), created=int(time.time()), model=llm.model_name, choices=choices, usage=usage)
    )


async def _events(llm: AsyncLLM, generations: list[Generation], has_usage: bool) -> AsyncGenerator[bytes, None]:
    id_, created, tokenizer = _new_id(), int(time.time()), llm.processor.tokenizer
    offsets = [0] * len(generations)

    def chunk(choices: list[CompletionChoice], usage: Usage | None = None) -> bytes:
        shown = usage if has_usage else UNSET
        return event(Completion(id=id_, created=created, model=llm.model_name, choices=choices, usage=shown))

    async with contextlib.aclosing(merge([visible(generation) for generation in generations])) as deltas:
        async for index, delta in deltas:
            logprobs, offsets[index] = completion_logprobs(tokenizer, delta.token_ids, delta.logprobs, offsets[index])
            yield chunk(
                [
                    CompletionChoice(
                        index=index,
                        text=delta.text,
                        finish_reason=delta.finish_reason,
                        stop_reason=delta.stop_reason,
                        logprobs=logprobs,
                    )
                ]
            )
    if has_usage:
        yield chunk([], usage_of([generation.stream for generation in generations]))


def _new_id() -> str:
    return f"cmpl-{uuid.uuid4().hex}"
