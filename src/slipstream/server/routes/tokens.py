"""POST /tokenize and /detokenize."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from slipstream.base.errors import RequestError
from slipstream.frontend.processor import Processor
from slipstream.server.protocol.endpoints import DETOKENIZE, TOKENIZE
from slipstream.server.protocol.parse import parse_fields
from slipstream.server.protocol.requests import DetokenizeRequest, TokenizeRequest
from slipstream.server.protocol.responses import Detokenized, Tokenized
from slipstream.server.routes.context import ServerContext, json_response
from slipstream.text.messages import parse_messages


def tokens_router(context: ServerContext) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.post(TOKENIZE.path)
    async def tokenize(request: Request) -> Response:
        asked = parse_fields(TOKENIZE, TokenizeRequest, await context.read(request))
        context.check_model(asked.model)
        processor = context.llm.processor
        ids = await asyncio.to_thread(_tokenize, processor, asked)
        strings = [processor.tokenizer.token(id_) for id_ in ids] if asked.return_token_strs else None
        return json_response(
            Tokenized(count=len(ids), max_model_len=processor.facts.max_model_len, tokens=list(ids), token_strs=strings)
        )

    @router.post(DETOKENIZE.path)
    async def detokenize(request: Request) -> Response:
        asked = parse_fields(DETOKENIZE, DetokenizeRequest, await context.read(request))
        context.check_model(asked.model)
        processor = context.llm.processor
        processor.check_ids(asked.tokens, "tokens")
        return json_response(Detokenized(prompt=processor.tokenizer.decode(asked.tokens, skip_special_tokens=False)))

    return router


def _tokenize(processor: Processor, asked: TokenizeRequest) -> tuple[int, ...]:
    if (asked.prompt is None) == (asked.messages is None):
        raise RequestError("give prompt or messages, and not both", param="prompt")
    if asked.prompt is not None:
        return tuple(processor.tokenizer.encode(asked.prompt, add_special_tokens=asked.add_special_tokens is not False))
    if asked.add_special_tokens:
        raise RequestError(
            "add_special_tokens with messages: the chat template writes every control token itself",
            param="add_special_tokens",
        )
    return processor.tokenize_chat(
        parse_messages(asked.messages),
        add_generation_prompt=asked.add_generation_prompt,
        template_kwargs=asked.chat_template_kwargs,
    )
