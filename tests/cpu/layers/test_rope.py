from __future__ import annotations

import math

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.layers.rope import build_rope_table


def test_cosines_then_sines():
    table = build_rope_table(100, 6, 1e4, "cpu")
    assert table.shape == (100, 6)
    assert table.dtype == torch.float32
    for position in (0, 1, 42, 99):
        for i in range(3):
            angle = position * 1e4 ** (-2 * i / 6)
            assert table[position, i].item() == pytest.approx(math.cos(angle), abs=1e-7)
            assert table[position, 3 + i].item() == pytest.approx(math.sin(angle), abs=1e-7)


def test_far_positions_are_exact():
    """Angles of 10^6 positions in float32 would be off by up to a thirtieth."""
    table = build_rope_table(1_000_001, 4, 5e6, "cpu")
    angle = 1_000_000 * 5e6**-0.5
    assert table[-1, 1].item() == pytest.approx(math.cos(angle), abs=1e-7)
    assert table[-1, 2].item() == pytest.approx(math.sin(1_000_000.0), abs=1e-7)


def test_frequencies_are_those_of_the_widely_used_formula():
    table = build_rope_table(64, 32, 1e5, "cpu")
    frequencies = 1.0 / (1e5 ** (torch.arange(0, 32, 2, dtype=torch.float32) / 32))
    angles = torch.outer(torch.arange(64, dtype=torch.float32), frequencies)
    assert torch.allclose(table, torch.cat((angles.cos(), angles.sin()), dim=1), atol=5e-6)


@pytest.mark.parametrize("rotary_dim", [0, -2, 7])
def test_odd_widths_are_refused(rotary_dim):
    with pytest.raises(ConfigError, match=f"rotary_dim = {rotary_dim}"):
        build_rope_table(8, rotary_dim, 1e4, "cpu")
