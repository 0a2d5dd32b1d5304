"""The filters with parameters of a batch."""

from __future__ import annotations

import torch

from slipstream.sampling.filters import filter_rows
from slipstream.wire.sampling_params import SamplingParams
from support.filter_oracle import kept_tokens
from support.toy_target import sampling_inputs


def test_every_row_has_its_own_filters():
    params = [
        SamplingParams(temperature=0.0, top_k=2),
        SamplingParams(temperature=1.5, top_k=4),
        SamplingParams(temperature=0.6, top_p=0.6),
        SamplingParams(min_p=0.3),
        SamplingParams(temperature=0.9, top_k=8, top_p=0.8, min_p=0.02),
    ]
    logits = torch.randn(5, 40, generator=torch.Generator().manual_seed(5)) * 2
    filtered = filter_rows(logits, sampling_inputs(params, range(5)))
    sizes = set()
    for row, one in enumerate(params):
        kept = (filtered[row] > -torch.inf).nonzero()[:, 0].tolist()
        assert kept == kept_tokens(logits[row].tolist(), one.temperature, one.top_k, one.top_p, one.min_p)
        sizes.add(len(kept))
    assert len(sizes) > 3, "the parameters do not tell the rows apart"
