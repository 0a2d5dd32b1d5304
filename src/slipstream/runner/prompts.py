"""Log-probabilities of prompt tokens, read off the chunks that compute the prompt.

The logits at position p speak of the token at p + 1, which the history holds already, so a chunk describes the prompt
tokens behind its own. The first token of a prompt is described by nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.models.interface import TargetModel
from slipstream.sampling.logprobs import TopLogprobs, chosen_logprobs, top_logprobs
from slipstream.wire.step import PrefillChunk, RowStart

MAX_ROWS_AT_ONCE = 128
"""Rows of logits that exist at a time: a chunk has many tokens, and a vocabulary is wide."""


@dataclass(frozen=True, slots=True)
class PromptAsk:
    """What one chunk is asked for; all of it is known on the host."""

    row: int
    first: int  # position of the first token described
    first_index: int  # index in the batch of the token before it
    count: int  # tokens described
    num_top: int


@dataclass(frozen=True, slots=True)
class PendingPrompt:
    """Device results of one ask, not read yet."""

    row: int
    first: int
    logprobs: Tensor  # [count] float32
    top: TopLogprobs | None
    event: torch.cuda.Event | None = None  # as in `handoff.PendingRuns`


def prompt_asks(chunks: tuple[PrefillChunk, ...], starts: dict[int, RowStart]) -> tuple[PromptAsk, ...]:
    """Return the asks of a step's chunks.

    Args:
        chunks: in batch order, laid end to end.
        starts: how each row began, by row.
    """
    asks: list[PromptAsk] = []
    index = 0
    for chunk in chunks:
        start = starts[chunk.row]
        count = min(chunk.end, start.num_prompt_tokens - 1) - chunk.start
        if start.num_prompt_logprobs is not None and count > 0:
            asks.append(PromptAsk(chunk.row, chunk.start + 1, index, count, start.num_prompt_logprobs))
        index += chunk.end - chunk.start
    return tuple(asks)


def describe_prompt(model: TargetModel, hidden: Tensor, history: Tensor, ask: PromptAsk) -> PendingPrompt:
    """Compute what one chunk says of the prompt; nothing waits.

    Args:
        model: gives the logits.
        hidden: [num_tokens, hidden_size]; of the step's chunks.
        history: [max_rows + 1, max_model_len] int64; of all rows.
        ask: what is wanted.
    """
    logprobs: list[Tensor] = []
    tops: list[TopLogprobs] = []
    for begin in range(0, ask.count, MAX_ROWS_AT_ONCE):
        end = min(begin + MAX_ROWS_AT_ONCE, ask.count)
        logits = model.compute_logits(hidden[ask.first_index + begin : ask.first_index + end])
        tokens = history[ask.row, ask.first + begin : ask.first + end]
        logprobs.append(chosen_logprobs(logits, tokens))
        if ask.num_top:
            tops.append(top_logprobs(logits, ask.num_top))
    top = None
    if tops:
        top = TopLogprobs(torch.cat([one.token_ids for one in tops]), torch.cat([one.logprobs for one in tops]))
    return PendingPrompt(ask.row, ask.first, torch.cat(logprobs), top)
