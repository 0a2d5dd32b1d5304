"""Log-probabilities of chosen tokens."""

from __future__ import annotations

import torch

from slipstream.sampling.logprobs import chosen_logprobs


def test_equals_the_log_softmax_in_float64():
    logits = torch.randn(3, 4, 50, generator=torch.Generator().manual_seed(0)) * 20
    tokens = torch.randint(0, 50, (3, 4), generator=torch.Generator().manual_seed(1))
    wanted = torch.log_softmax(logits.double(), -1).gather(-1, tokens[..., None])[..., 0]
    found = chosen_logprobs(logits, tokens)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, atol=1e-4, rtol=1e-5)


def test_is_raw_and_contained():
    logits = torch.tensor([[0.0, 0.0], [torch.nan, 1.0], [-torch.inf, 5.0]])
    found = chosen_logprobs(logits, torch.tensor([1, 1, 1]))
    torch.testing.assert_close(found[0], torch.tensor(0.5).log())
    assert found[1].isnan()
    assert found[2] == 0
