"""POST /tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from slipstream.base.errors import ContextLengthError, RequestError
from slipstream.frontend.chat import ChatAsk, check_variables
from slipstream.frontend.processor import CONTEXT_CODE, Processor
from slipstream.server.protocol.endpoints import DETOKENIZE, MAX_CONTEXTS, TOKENIZE
from slipstream.server.protocol.parse import parse_fields
from slipstream.server.protocol.requests import DetokenizeRequest, TokenizeRequest
from slipstream.server.protocol.responses import Detokenized, Tokenized
from slipstream.server.routes.context import ServerContext, json_response
from slipstream.text.chat_template import strings_of
from slipstream.text.messages import parse_messages
from slipstream.text.tools.schema import ToolSet, parse_tools


def tokens_router(context: ServerContext) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.post(TOKENIZE.path)
    async def tokenize(request: Request) -> Response:
        asked = parse_fields(TOKENIZE, TokenizeRequest, await context.read(request))
        context.check_model(asked.model)
        processor = context.llm.processor
        ask = _conversation_of(asked)
        check_variables(asked.chat_template_kwargs, processor.template_variables)
        texts = strings_of(ask.messages) if ask else [asked.prompt or ""]
        processor.check_text(texts, "messages" if ask else "prompt", num_contexts=MAX_CONTEXTS)
        num_chars = ask.num_chars if ask else len(texts[0])
        return await context.llm.work_on_text(lambda: json_response(_tokenized(processor, asked, ask)), num_chars)

    @router.post(DETOKENIZE.path)
    async def detokenize(request: Request) -> Response:
        fields = await context.read(request)
        processor = context.llm.processor
        _check_count(processor, fields.get("tokens"), "tokens")
        asked = parse_fields(DETOKENIZE, DetokenizeRequest, fields)
        context.check_model(asked.model)
        return await context.llm.work_on_text(
            lambda: json_response(_detokenized(processor, asked.tokens)), len(asked.tokens)
        )

    return router


def _conversation_of(asked: TokenizeRequest) -> ChatAsk | None:
    """Return the conversation to tokenise; None when it is a prompt."""
    if (asked.prompt is None) == (asked.messages is None):
        raise RequestError("give prompt or messages, and not both", param="prompt")
    if asked.messages is not None and asked.add_special_tokens:
        raise RequestError(
            "add_special_tokens with messages: the chat template writes every control token itself",
            param="add_special_tokens",
        )
    if asked.messages is None and asked.tools:
        raise RequestError("tools with prompt: the chat template shows tools; send messages", param="tools")
    if asked.messages is None:
        return None
    return ChatAsk(
        messages=parse_messages(asked.messages),
        tools=parse_tools(asked.tools) if asked.tools else ToolSet(),
        template_kwargs=asked.chat_template_kwargs,
        add_generation_prompt=asked.add_generation_prompt,
    )


def _tokenized(processor: Processor, asked: TokenizeRequest, ask: ChatAsk | None) -> Tokenized:
    tokenizer = processor.tokenizer
    if ask is None:
        ids = tokenizer.encode(asked.prompt or "", add_special_tokens=asked.add_special_tokens is not False)
    else:
        ids = processor.tokenize_chat(ask, num_contexts=MAX_CONTEXTS)
    ids = list(ids)
    _check_count(processor, ids, "prompt" if asked.messages is None else "messages")
    strings = [tokenizer.token(id_) for id_ in ids] if asked.return_token_strs else None
    return Tokenized(count=len(ids), max_model_len=processor.facts.max_model_len, tokens=ids, token_strs=strings)


def _detokenized(processor: Processor, ids: list[int]) -> Detokenized:
    processor.check_ids(ids, "tokens")
    return Detokenized(prompt=processor.tokenizer.decode(ids, skip_special_tokens=False))


def _check_count(processor: Processor, ids: Any, param: str) -> None:
    limit = MAX_CONTEXTS * processor.facts.max_model_len
    if isinstance(ids, list) and len(ids) > limit:
        raise ContextLengthError(
            f"{param} has {len(ids)} tokens; at most {limit} are served, {MAX_CONTEXTS} times the context: send less",
            param=param,
            code=CONTEXT_CODE,
        )
