"""From generations to the pieces of an answer: text, tokens, usage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import msgspec

from slipstream.frontend.generation import Generation
from slipstream.frontend.stream import Delta, RequestStream
from slipstream.server.protocol.responses import (
    MIN_LOGPROB,
    ChatLogprobs,
    CompletionLogprobs,
    CompletionTokensDetails,
    PromptTokensDetails,
    Speculation,
    TokenLogprob,
    Usage,
)
from slipstream.text.tokenizer import Tokenizer


class Answer(msgspec.Struct, kw_only=True):
    """What one request was answered with."""

    text: str
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str | None
    stop_reason: int | str | None


async def collect(generation: Generation) -> Answer:
    """Return the whole answer of a request."""
    deltas = [delta async for delta in generation]
    return Answer(
        text="".join(delta.text for delta in deltas),
        token_ids=[id_ for delta in deltas for id_ in delta.token_ids],
        logprobs=[value for delta in deltas for value in delta.logprobs],
        finish_reason=deltas[-1].finish_reason,
        stop_reason=deltas[-1].stop_reason,
    )


async def visible(generation: Generation) -> AsyncGenerator[Delta, None]:
    """Yield the deltas that a client can see something in."""
    async for delta in generation:
        if delta.text or delta.logprobs or delta.finish_reason is not None:
            yield delta


def usage_of(streams: Sequence[RequestStream]) -> Usage:
    """Return the usage of the requests of one call, once they have ended."""
    num_prompt_tokens = sum(len(stream.request.prompt_token_ids) for stream in streams)
    num_generated_tokens = sum(stream.num_generated_tokens for stream in streams)
    num_draft_tokens = sum(stream.num_draft_tokens for stream in streams)
    num_accepted = sum(stream.num_accepted for stream in streams)
    return Usage(
        prompt_tokens=num_prompt_tokens,
        completion_tokens=num_generated_tokens,
        total_tokens=num_prompt_tokens + num_generated_tokens,
        prompt_tokens_details=PromptTokensDetails(sum(stream.num_prefix_hit_tokens for stream in streams)),
        completion_tokens_details=CompletionTokensDetails(num_accepted, num_draft_tokens - num_accepted),
        speculation=Speculation(
            num_verify_steps=sum(stream.num_verify_steps for stream in streams),
            num_draft_tokens=num_draft_tokens,
            num_accepted=num_accepted,
            num_emitted=sum(stream.num_emitted for stream in streams),
        ),
    )


def chat_logprobs(tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Sequence[float]) -> ChatLogprobs | None:
    """Return tokens in the shape of a chat answer; None when log-probabilities were not asked for."""
    if not logprobs:
        return None
    return ChatLogprobs(
        [
            TokenLogprob(token=_text(tokenizer, id_), logprob=_finite(value), bytes=list(tokenizer.token_bytes(id_)))
            for id_, value in zip(token_ids, logprobs, strict=True)
        ]
    )


def completion_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Sequence[float], offset: int = 0
) -> tuple[CompletionLogprobs | None, int]:
    """Return tokens in the shape of a completion, and the offset behind them.

    Args:
        tokenizer: gives their text.
        token_ids: the tokens.
        logprobs: one per token; empty when not asked for.
        offset: characters of the tokens before these.
    """
    if not logprobs:
        return None, offset
    tokens = [_text(tokenizer, id_) for id_ in token_ids]
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    values = [_finite(value) for value in logprobs]
    return CompletionLogprobs(tokens=tokens, token_logprobs=values, text_offset=offsets), offset


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.decode([token_id], skip_special_tokens=False)


def _finite(logprob: float) -> float:
    return max(logprob, MIN_LOGPROB)
