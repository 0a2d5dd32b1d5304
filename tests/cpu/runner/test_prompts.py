"""Which chunk describes which prompt token, and that slices of logits change nothing."""

from __future__ import annotations

import pytest
import torch

from slipstream.runner import prompts
from slipstream.runner.prompts import PromptAsk, describe_prompt, prompt_asks
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import PrefillChunk, RowStart


def start(num_prompt: int, num_known: int, count: int | None) -> RowStart:
    return RowStart(
        row=0,
        token_ids=tuple(range(num_known)),
        num_computed_tokens=0,
        max_seq_len=99,
        sampling=SamplingParams(),
        seed=0,
        num_prompt_tokens=num_prompt,
        num_prompt_logprobs=count,
    )


def chunk(row: int, begin: int, end: int) -> PrefillChunk:
    return PrefillChunk(row=row, start=begin, end=end, is_last=False)


@pytest.mark.parametrize("cuts", [[9], [1, 8], [4, 5], [3, 3, 3], [1] * 9])
def test_chunks_describe_every_prompt_token_but_the_first_once(cuts: list[int]) -> None:
    begin, described = 0, []
    for length in cuts:
        for ask in prompt_asks((chunk(0, begin, begin + length),), {0: start(9, 9, 2)}):
            assert ask.first_index == 0
            assert ask.num_top == 2
            described += range(ask.first, ask.first + ask.count)
        begin += length
    assert described == list(range(1, 9))


def test_only_rows_that_ask_and_only_their_prompt() -> None:
    starts = {0: start(5, 5, None), 1: start(3, 9, 0), 2: start(6, 6, 4), 3: start(1, 1, 4)}
    asks = prompt_asks((chunk(0, 0, 5), chunk(1, 0, 9), chunk(2, 2, 6), chunk(3, 0, 1)), starts)
    assert asks == (PromptAsk(1, 1, 5, 2, 0), PromptAsk(2, 3, 14, 3, 4))


class Head:
    """Logits are the hidden states."""

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


def test_slices_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = torch.randn(20, 7, generator=torch.Generator().manual_seed(0))
    history = torch.randint(0, 7, (3, 30), generator=torch.Generator().manual_seed(1))
    ask = PromptAsk(row=1, first=4, first_index=6, count=11, num_top=3)
    whole = describe_prompt(Head(), hidden, history, ask)
    monkeypatch.setattr(prompts, "MAX_ROWS_AT_ONCE", 4)
    sliced = describe_prompt(Head(), hidden, history, ask)
    wanted = hidden[6:17].log_softmax(-1)
    torch.testing.assert_close(whole.logprobs, wanted.gather(1, history[1, 4:15, None])[:, 0])
    assert torch.equal(whole.logprobs, sliced.logprobs)
    assert whole.top is not None
    assert sliced.top is not None
    assert torch.equal(whole.top.token_ids, sliced.top.token_ids)
    torch.testing.assert_close(whole.top.logprobs, wanted.topk(3).values)
    assert describe_prompt(Head(), hidden, history, PromptAsk(1, 4, 6, 11, 0)).top is None
