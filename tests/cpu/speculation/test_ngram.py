"""The n-gram drafter through the protocol."""

from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.speculation.interface import ProposeInputs
from slipstream.speculation.ngram import NgramDrafter
from slipstream.wire.sampling_params import SamplingParams
from support.toy_target import NO_CACHE, sampling_inputs


def make_inputs(histories: list[list[int]], bases: list[int], accepted: list[int]) -> ProposeInputs:
    count, width = len(histories), 12
    history = torch.full((count, width), 77)
    for row, tokens in enumerate(histories):
        history[row, : len(tokens)] = torch.tensor(tokens)
    return ProposeInputs(
        emitted=torch.full((count, 4), -9),
        num_accepted=torch.tensor(accepted),
        base_positions=torch.tensor(bases),
        max_seq_lens=torch.full((count,), width),
        taps=torch.zeros(count, 4, 0),
        page_table=torch.zeros(count, 1, dtype=torch.int32),
        sampling=sampling_inputs([SamplingParams()] * count, range(count)),
        history=history,
        is_greedy=False,
    )


def test_continues_after_the_last_emitted_token():
    """y is at n + a + 1; matching an ending one token early or late would give another draft."""
    drafter = NgramDrafter(3, 2, 1)
    text = [1, 2, 3, 4, 9, 1, 2, 3]
    for base, accepted, wanted in ((4, 1, [3, 4, 9]), (4, 2, [4, 9, 1]), (6, 0, [4, 9, 1]), (5, 0, [3, 4, 9])):
        history = text[: base + accepted + 2]
        assert drafter.propose(make_inputs([history], [base], [accepted]), NO_CACHE).draft_tokens.tolist() == [wanted]


def test_padding_and_full_histories_propose_nothing():
    drafter = NgramDrafter(2, 2, 1)
    inputs = make_inputs([[77, 77, 77], [1] * 12, [1] * 4], [-1, 11, 2], [1, 0, 0])
    assert drafter.propose(inputs, NO_CACHE).draft_tokens.tolist() == [[-1, -1], [-1, -1], [1, -1]]


def test_the_spec():
    spec = NgramDrafter(5, 3, 1).spec
    assert (spec.name, spec.draft_len, spec.needs_history, spec.num_cache_layers) == ("ngram", 5, True, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0, 3, 1), "draft_len=0"), ((2, 1, 2), "ngram_min=2 and ngram_max=1"), ((2, 3, 0), "ngram_min=0")],
)
def test_lengths_that_do_not_fit_are_refused(arguments, message: str):
    with pytest.raises(ConfigError, match=message):
        NgramDrafter(*arguments)
