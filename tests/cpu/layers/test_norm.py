from __future__ import annotations

import pytest
import torch

from slipstream.layers.norm import HeadNorm, RMSNorm
from slipstream.layers.rope import build_rope_table
from support import oracles
from support.layer_parts import fill, make_full

PLACE = {"dtype": torch.float32, "device": "cpu"}


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("gemma", [False, True])
def test_rows(gemma):
    norm = RMSNorm(12, 1e-5, gemma=gemma, **PLACE)
    weight = make_full(norm)["", ""]
    fill(norm, make_full(norm))
    assert torch.allclose(norm(draw(3, 12)).double(), oracles.rms_norm(draw(3, 12), weight, 1e-5, gemma), atol=1e-6)


def test_rows_after_an_addition():
    norm = RMSNorm(12, 1e-5, gemma=True, **PLACE)
    fill(norm, make_full(norm))
    normed, residual = norm.forward_add(draw(3, 12), draw(3, 12, seed=1))
    assert torch.equal(residual, draw(3, 12) + draw(3, 12, seed=1))
    assert torch.equal(normed, norm(residual))


def test_heads_use_the_weight_of_their_name():
    norm = HeadNorm((("q", 3), ("k", 1), ("index_q", 2)), 8, 1e-6, gemma=True, **PLACE)
    full = make_full(norm)
    fill(norm, full)
    table, positions = build_rope_table(32, 4, 1e4, "cpu"), torch.tensor([0, 5, 31])
    x = draw(3, 6, 8)
    weight = torch.stack([full["", "q"], full["", "k"], full["", "index_q"]])
    kinds = torch.tensor([0, 0, 0, 1, 2, 2])
    expected = oracles.qk_norm_rope(x, weight, kinds, 1e-6, True, table, positions)
    assert torch.allclose(norm(x, table, positions).double(), expected, atol=2e-6)


def test_heads_from_one_on():
    norm = HeadNorm((("q", 3), ("k", 2)), 8, 1e-6, gemma=True, **PLACE)
    fill(norm, make_full(norm))
    table, positions = build_rope_table(32, 4, 1e4, "cpu"), torch.tensor([7, 8])
    x = draw(2, 5, 8)
    assert torch.equal(norm(x[:, 3:], table, positions, 3), norm(x, table, positions)[:, 3:])


def test_the_table_of_kinds_is_not_stored_in_checkpoints():
    assert set(HeadNorm((("q", 3),), 8, 1e-6, gemma=True, **PLACE).state_dict()) == {"weight"}
