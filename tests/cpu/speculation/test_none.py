"""An engine without speculation asks its drafter as any other."""

from __future__ import annotations

import torch

from slipstream.speculation.interface import ProposeInputs
from slipstream.speculation.none import NoDrafter
from slipstream.wire.sampling_params import SamplingParams
from support.toy_target import NO_CACHE, sampling_inputs


def test_proposes_nothing_for_every_request():
    drafter = NoDrafter()
    inputs = ProposeInputs(
        emitted=torch.tensor([[4], [5]]),
        num_accepted=torch.tensor([0, 0]),
        base_positions=torch.tensor([3, -1]),
        max_seq_lens=torch.tensor([9, 0]),
        taps=torch.zeros(2, 1, 0),
        page_table=torch.zeros(2, 1, dtype=torch.int32),
        sampling=sampling_inputs([SamplingParams()] * 2, range(2)),
        history=torch.zeros(2, 9, dtype=torch.int64),
        is_greedy=False,
    )
    drafts = drafter.propose(inputs, NO_CACHE).draft_tokens
    assert drafts.shape == (2, 0)
    assert drafts.dtype == torch.int64
    assert (drafter.spec.draft_len, drafter.spec.aux_layer_ids, drafter.spec.num_cache_layers) == (0, (), 0)
