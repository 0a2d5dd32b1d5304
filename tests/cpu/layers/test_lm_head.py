from __future__ import annotations

import pytest
import torch

from slipstream.layers.lm_head import LmHead
from slipstream.parallel.group import one_rank
from support.layer_parts import fill, make_full, run_ranks


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_float32_of_the_whole_vocabulary(dtype):
    head = LmHead(20, 16, group=one_rank(), dtype=dtype, device="cpu")
    full = make_full(head)
    hidden = draw(3, 16).to(dtype)
    expected = hidden.double() @ full["", ""].to(dtype).double().T
    logits = fill(head, full)(hidden)
    assert logits.dtype == torch.float32
    assert torch.allclose(logits.double(), expected, atol=2e-6)
    for own in run_ranks(2, lambda group: fill(LmHead(20, 16, group=group, dtype=dtype, device="cpu"), full)(hidden)):
        assert torch.allclose(own.double(), expected, atol=2e-6)


def test_close_logits_do_not_tie_in_bfloat16():
    """Two rows whose products differ by less than a bfloat16 step at this size keep their order."""
    head = LmHead(2, 16, group=one_rank(), dtype=torch.bfloat16, device="cpu")
    weight = torch.full((2, 16), 4.0)
    weight[1, 0] = 4.03125
    logits = fill(head, {("", ""): weight})(torch.ones(1, 16, dtype=torch.bfloat16))
    assert logits[0, 1] > logits[0, 0]
    assert logits[0, 1].bfloat16() == logits[0, 0].bfloat16()
