"""From generations to the pieces of an answer that every endpoint shares: whole answers, usage, log-probabilities.

Not here: the choices of /v1/completions (completion_choices).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from slipstream.frontend.generation import Generation
from slipstream.frontend.stream import Delta, RequestStream
from slipstream.server.protocol.chat_responses import ChatLogprobs, TokenLogprob, TopLogprob
from slipstream.server.protocol.responses import (
    MIN_LOGPROB,
    UNSET,
    CompletionTokensDetails,
    PromptLogprob,
    PromptTokensDetails,
    Speculation,
    Usage,
)
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.step import Alternatives


async def collect(generation: Generation) -> Delta:
    """Return all deltas of a request as one."""
    return join([delta async for delta in generation])


def join(deltas: Sequence[Delta]) -> Delta:
    """Return all deltas of a request as one, without the pieces of its text."""
    return Delta(
        text="".join(delta.text for delta in deltas),
        token_ids=tuple(id_ for delta in deltas for id_ in delta.token_ids),
        logprobs=tuple(value for delta in deltas for value in delta.logprobs),
        top_logprobs=tuple(one for delta in deltas for one in delta.top_logprobs),
        prompt_logprobs=tuple(value for delta in deltas for value in delta.prompt_logprobs),
        prompt_top_logprobs=tuple(one for delta in deltas for one in delta.prompt_top_logprobs),
        finish_reason=deltas[-1].finish_reason,
        stop_reason=deltas[-1].stop_reason,
    )


async def visible(generation: Generation, *, shows_ids: bool = False) -> AsyncGenerator[Delta, None]:
    """Yield the deltas that a client can see something in.

    Args:
        generation: the request.
        shows_ids: the client is shown token ids too.
    """
    async for delta in generation:
        is_visible = delta.text or delta.logprobs or delta.prompt_logprobs or delta.finish_reason is not None
        if is_visible or (shows_ids and delta.token_ids):
            yield delta


def usage_of(streams: Sequence[RequestStream], num_choices: int = 1, num_reasoning_tokens: int = 0) -> Usage:
    """Return the usage of the requests of one call, once they have ended.

    Args:
        streams: the requests; those of one prompt are neighbours.
        num_choices: requests per prompt, which is counted once.
        num_reasoning_tokens: returned tokens whose text is reasoning.
    """
    prompts = streams[::num_choices]
    num_prompt_tokens = sum(len(stream.request.prompt_token_ids) for stream in prompts)
    num_generated_tokens = sum(stream.num_generated_tokens for stream in streams)
    num_draft_tokens = sum(stream.num_draft_tokens for stream in streams)
    num_accepted = sum(stream.num_accepted for stream in streams)
    return Usage(
        prompt_tokens=num_prompt_tokens,
        completion_tokens=num_generated_tokens,
        total_tokens=num_prompt_tokens + num_generated_tokens,
        prompt_tokens_details=PromptTokensDetails(sum(stream.num_prefix_hit_tokens for stream in prompts)),
        completion_tokens_details=CompletionTokensDetails(
            num_accepted, num_draft_tokens - num_accepted, min(num_reasoning_tokens, num_generated_tokens)
        ),
        speculation=speculation_of(streams),
    )


def speculation_of(streams: Sequence[RequestStream]) -> Speculation:
    """Return the counts of some requests together, so far."""
    return Speculation(
        num_verify_steps=sum(stream.num_verify_steps for stream in streams),
        num_draft_tokens=sum(stream.num_draft_tokens for stream in streams),
        num_accepted=sum(stream.num_accepted for stream in streams),
        num_emitted=sum(stream.num_emitted for stream in streams),
    )


def chat_logprobs(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    top_logprobs: Sequence[Alternatives] = (),
    *,
    as_ids: bool = False,
) -> ChatLogprobs | None:
    """Return tokens in the shape of a chat answer; None when log-probabilities were not asked for.

    Args:
        tokenizer: gives their text.
        token_ids: the tokens.
        logprobs: one per token; empty when not asked for.
        top_logprobs: the alternatives of each token; empty when not asked for.
        as_ids: write `token_id:N` in place of a token's text.
    """
    if not logprobs:
        return None
    alternatives = top_logprobs or ((),) * len(logprobs)
    return ChatLogprobs(
        [
            TokenLogprob(
                token=token_name(tokenizer, id_, as_ids=as_ids),
                logprob=finite(value),
                bytes=list(tokenizer.token_bytes(id_)),
                top_logprobs=[
                    TopLogprob(
                        token=token_name(tokenizer, other, as_ids=as_ids),
                        logprob=finite(logprob),
                        bytes=list(tokenizer.token_bytes(other)),
                    )
                    for other, logprob in top
                ],
            )
            for id_, value, top in zip(token_ids, logprobs, alternatives, strict=True)
        ]
    )


def prompt_logprobs_of(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    top_logprobs: Sequence[Alternatives] = (),
) -> list[dict[str, PromptLogprob] | None]:
    """Return the log-probabilities of a prompt: per token its own, then those of the alternatives, by token id.

    The first token has none. The place of a token that is not among the alternatives is not known, so it has no rank.

    Args:
        tokenizer: gives the text of the tokens.
        token_ids: the prompt.
        logprobs: of every token but the first.
        top_logprobs: the alternatives there, best first; empty when not asked for.
    """
    alternatives = top_logprobs or ((),) * len(logprobs)
    entries: list[dict[str, PromptLogprob] | None] = [None]
    for id_, value, top in zip(token_ids[1:], logprobs, alternatives, strict=True):
        ranks = {other: rank for rank, (other, _) in enumerate(top, start=1)}
        entries.append(
            {
                str(other): PromptLogprob(
                    logprob=finite(logprob),
                    rank=ranks.get(other, UNSET),
                    decoded_token=token_name(tokenizer, other),
                )
                for other, logprob in {id_: value, **dict(top)}.items()
            }
        )
    return entries


def token_name(tokenizer: Tokenizer, token_id: int, *, as_ids: bool = False) -> str:
    """Return the text of one token, or `token_id:N`."""
    return f"token_id:{token_id}" if as_ids else tokenizer.decode([token_id], skip_special_tokens=False)


def finite(logprob: float) -> float:
    """Return a log-probability that JSON can hold."""
    return max(logprob, MIN_LOGPROB)
