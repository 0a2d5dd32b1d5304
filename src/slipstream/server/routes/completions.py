"""POST /v1/completions: n choices per prompt, in the order of the prompts."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from slipstream.base.errors import RequestError
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.call import Call
from slipstream.frontend.generation import Generation
from slipstream.server.answer import collect, usage_of, visible
from slipstream.server.call_id import call_of
from slipstream.server.completion_choices import ChoiceWriter, PromptText, Shown
from slipstream.server.disconnect import result_or_leave
from slipstream.server.merge import merge
from slipstream.server.protocol.endpoints import COMPLETIONS
from slipstream.server.protocol.parse import (
    completion_sampling,
    parse_fields,
    parse_prompts,
    wants_running_usage,
    wants_usage,
)
from slipstream.server.protocol.requests import CompletionRequest
from slipstream.server.protocol.responses import (
    UNSET,
    Completion,
    CompletionChoice,
    CompletionChunk,
    RunningUsage,
    Usage,
)
from slipstream.server.protocol.structured import blaming, grammar_field
from slipstream.server.routes.context import ServerContext, json_response
from slipstream.server.sse import EventStream, event
from slipstream.wire.sampling_params import SamplingParams

_MAX_ENTRIES = 10_000
"""Log-probabilities that are written in the event loop; more would let other streams stand still."""

_Result = TypeVar("_Result")


def completions_router(context: ServerContext) -> APIRouter:
    """Return the route."""
    router = APIRouter()

    @router.post(COMPLETIONS.path)
    async def create(request: Request) -> Response:
        asked = parse_fields(COMPLETIONS, CompletionRequest, await context.read(request))
        context.check_model(asked.model)
        has_usage = wants_usage(asked)
        if not asked.stream:
            return await result_or_leave(request, _whole(context.llm, asked, call_of(request)))
        opened = await result_or_leave(request, _open(context.llm, asked, call_of(request)))
        return EventStream(_events(context.llm, opened, has_usage, wants_running_usage(asked)), opened.close)

    return router


class _Choices:
    """The choices of one call: the request of each, and what writes it.

    Args:
        num_choices: per prompt.
        shown: what the choices show.
    """

    def __init__(self, num_choices: int, shown: Shown) -> None:
        self.num_choices = num_choices
        self.shown = shown
        self.generations: list[Generation] = []
        self.writers: list[ChoiceWriter] = []

    def close(self) -> None:
        """End what still runs."""
        for generation in self.generations:
            generation.close()

    @property
    def usage(self) -> Usage:
        """What the call cost, once it has ended."""
        usage = usage_of([generation.stream for generation in self.generations], self.num_choices)
        if not self.shown.is_prompt_only:
            return usage
        return msgspec.structs.replace(usage, completion_tokens=0, total_tokens=usage.prompt_tokens)


async def _open(llm: AsyncLLM, asked: CompletionRequest, call: Call) -> _Choices:
    """Submit every choice of every prompt, or none."""
    prompts = parse_prompts(
        asked.prompt, max_prompts=llm.max_in_flight, max_prompt_tokens=llm.processor.facts.max_model_len
    )
    sampling = completion_sampling(asked)
    if len(prompts) * sampling.n > llm.max_in_flight:
        raise RequestError(
            f"n={sampling.n} choices of {len(prompts)} prompts are {len(prompts) * sampling.n} requests; this server "
            f"takes {llm.max_in_flight} requests at once: lower n, or send fewer prompts",
            param="n",
        )
    opened = _Choices(sampling.n, _shown_by(asked))
    try:
        with blaming(grammar_field(asked)):
            for prompt in prompts:
                await _open_prompt(llm, asked, prompt, sampling, opened, call)
    except BaseException:
        opened.close()
        raise
    return opened


async def _open_prompt(
    llm: AsyncLLM,
    asked: CompletionRequest,
    given: str | list[int],
    sampling: SamplingParams,
    opened: _Choices,
    call: Call,
) -> None:
    """Submit every choice of one prompt."""
    first = await llm.open(given, sampling.for_choice(0), add_special_tokens=asked.add_special_tokens, call=call)
    opened.generations.append(first)
    tokenizer, ids = llm.processor.tokenizer, first.stream.request.prompt_token_ids
    prompt = PromptText(tokenizer, ids, given if isinstance(given, str) else None)
    for index in range(1, sampling.n):
        # Large parameters are checked once per choice; other streams go on in between.
        await asyncio.sleep(0)
        opened.generations.append(await llm.open(ids, sampling.for_choice(index), call=call))
    while len(opened.writers) < len(opened.generations):
        opened.writers.append(ChoiceWriter(tokenizer, opened.shown, len(opened.writers), prompt))


def _shown_by(asked: CompletionRequest) -> Shown:
    return Shown(
        num_logprobs=asked.logprobs,
        num_prompt_logprobs=asked.prompt_logprobs,
        echo=asked.echo,
        is_prompt_only=asked.max_tokens == 0,
        has_ids=asked.return_token_ids,
        as_ids=asked.return_tokens_as_token_ids,
        skips_special=asked.skip_special_tokens,
    )


async def _whole(llm: AsyncLLM, asked: CompletionRequest, call: Call) -> Response:
    opened = await _open(llm, asked, call)
    try:
        answers = await asyncio.gather(*(collect(generation) for generation in opened.generations))
    finally:
        opened.close()
    pairs = list(zip(opened.writers, answers, strict=True))

    def answer() -> Response:
        choices = [writer.write(delta) for writer, delta in pairs]
        message = Completion(
            id=_new_id(), created=int(time.time()), model=llm.model_name, choices=choices, usage=opened.usage
        )
        return json_response(message)

    return await _aside(answer, sum(writer.num_entries(delta) for writer, delta in pairs))


async def _events(llm: AsyncLLM, opened: _Choices, has_usage: bool, has_running: bool) -> AsyncGenerator[bytes, None]:
    id_, created = _new_id(), int(time.time())

    def chunk(choices: list[CompletionChoice], usage: RunningUsage | None) -> bytes:
        shown = usage if has_usage else UNSET
        return event(CompletionChunk(id=id_, created=created, model=llm.model_name, choices=choices, usage=shown))

    sources = [visible(generation, shows_ids=opened.shown.has_ids) for generation in opened.generations]
    async with contextlib.aclosing(merge(sources)) as deltas:
        async for index, delta in deltas:
            writer = opened.writers[index]
            choice = await _aside(lambda writer=writer, delta=delta: writer.write(delta), writer.num_entries(delta))
            yield chunk([choice], writer.usage if has_running else None)
    if has_usage:
        yield chunk([], opened.usage)


async def _aside(work: Callable[[], _Result], num_entries: int) -> _Result:
    """Return what the work returns; a lot of it is done in a thread."""
    return await asyncio.to_thread(work) if num_entries > _MAX_ENTRIES else work()


def _new_id() -> str:
    return f"cmpl-{uuid.uuid4().hex}"
