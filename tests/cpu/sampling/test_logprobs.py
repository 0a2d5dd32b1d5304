"""Log-probabilities of chosen tokens and of the most likely ones."""

from __future__ import annotations

import torch

from slipstream.sampling.logprobs import chosen_logprobs, top_logprobs


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


def test_alternatives_are_the_most_likely_tokens_whatever_their_number():
    logits = torch.randn(3, 4, 50, generator=torch.Generator().manual_seed(0)) * 2
    wide, narrow = top_logprobs(logits, 20), top_logprobs(logits, 3)
    assert torch.equal(wide.token_ids[..., :3], narrow.token_ids)
    assert torch.equal(wide.logprobs[..., :3], narrow.logprobs)
    wanted = torch.log_softmax(logits.double(), -1).topk(20)
    assert torch.equal(wide.token_ids, wanted.indices)
    torch.testing.assert_close(wide.logprobs.double(), wanted.values, atol=1e-5, rtol=1e-5)
    for place in range(20):
        assert torch.equal(wide.logprobs[..., place], chosen_logprobs(logits, wide.token_ids[..., place]))


def test_ties_go_by_token_id():
    assert top_logprobs(torch.tensor([1.0, 2.0, 1.0, 2.0, 1.0]), 4).token_ids.tolist() == [1, 3, 0, 2]


def test_the_order_is_that_of_a_stable_sort():
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(2)).round(decimals=1)
    logits[0, ::3] = -torch.inf
    logits[1, ::2] = 0.0
    logits[1, 1::2] = -0.0
    logits[2] = -logits[2].abs()
    wanted = logits.sort(dim=-1, descending=True, stable=True).indices[:, :20]
    assert torch.equal(top_logprobs(logits, 20).token_ids, wanted)


def test_more_alternatives_than_tokens_are_all_tokens():
    assert top_logprobs(torch.zeros(2, 3), 20).token_ids.tolist() == [[0, 1, 2]] * 2
