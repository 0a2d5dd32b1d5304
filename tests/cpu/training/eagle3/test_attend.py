from __future__ import annotations

import pytest
import torch

from slipstream.training.eagle3 import attend as attend_module
from slipstream.training.eagle3.attend import attend

BATCH, ROWS, KV_HEADS, GROUP, WIDTH = 2, 7, 2, 3, 4


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def inputs(num_steps):
    q = random(BATCH, ROWS, KV_HEADS * GROUP, WIDTH, seed=0)
    keys = [random(BATCH, ROWS, KV_HEADS, WIDTH, seed=10 + step) for step in range(num_steps)]
    values = [random(BATCH, ROWS, KV_HEADS, WIDTH, seed=20 + step) for step in range(num_steps)]
    return q, keys, values


def one_by_one(q, keys, values):
    """Every query for itself, over the list of what it sees."""
    out = torch.zeros(BATCH, ROWS, KV_HEADS * GROUP, WIDTH)
    for b in range(BATCH):
        for row in range(ROWS):
            for head in range(KV_HEADS * GROUP):
                kv = head // GROUP
                seen = [(keys[0][b, r, kv], values[0][b, r, kv]) for r in range(row + 1)]
                seen += [(k[b, row, kv], v[b, row, kv]) for k, v in zip(keys[1:], values[1:], strict=True)]
                scores = torch.stack([q[b, row, head] @ key for key, _ in seen]) / WIDTH**0.5
                mixed = [share * value for share, (_, value) in zip(scores.softmax(0), seen, strict=True)]
                out[b, row, head] = torch.stack(mixed).sum(0)
    return out.flatten(2)


@pytest.mark.parametrize("num_steps", [1, 3])
def test_every_start_sees_fresh_rows_up_to_itself_and_its_own_drafts(num_steps):
    torch.testing.assert_close(attend(*inputs(num_steps)), one_by_one(*inputs(num_steps)), atol=1e-6, rtol=1e-5)


def test_drafts_of_other_starts_are_not_seen():
    q, keys, values = inputs(2)
    with torch.no_grad():
        keys[1][:, 3] += 5
        values[1][:, 3] += 5
    difference = (attend(q, keys, values) - attend(*inputs(2))).abs().amax((0, 2))
    assert difference[3] > 0.1
    assert difference[[0, 1, 2, 4, 5, 6]].max() == 0


def test_gradients_are_the_same_when_scores_are_computed_again(monkeypatch):
    def gradients():
        q, keys, values = inputs(3)
        (attend(q, keys, values) ** 2).sum().backward()
        return [x.grad for x in (q, *keys, *values)]

    kept = gradients()
    monkeypatch.setattr(attend_module, "RECOMPUTE_ROWS", 1)
    for one, other in zip(kept, gradients(), strict=True):
        assert one.abs().sum() > 0
        torch.testing.assert_close(one, other)
