from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.layers.linear import ColumnLinear, HeldRows, MergedColumnLinear, ReplicatedLinear, RowLinear
from slipstream.parallel.group import one_rank
from support.layer_parts import fill, make_full, run_ranks

PLACE = {"dtype": torch.float32, "device": "cpu"}


def make_x(width=12):
    return torch.randn(3, width, generator=torch.Generator().manual_seed(0))


def test_replicated_is_the_plain_product():
    linear = ReplicatedLinear(12, 8, **PLACE)
    full = make_full(linear)
    assert torch.allclose(fill(linear, full)(make_x()), make_x() @ full["", ""].T, atol=1e-6)


def test_columns_concatenate_to_the_whole():
    full = make_full(ColumnLinear(12, 8, group=one_rank(), **PLACE))
    parts = run_ranks(4, lambda group: fill(ColumnLinear(12, 8, group=group, **PLACE), full)(make_x()))
    assert [part.shape for part in parts] == [(3, 2)] * 4
    assert torch.allclose(torch.cat(parts, dim=1), make_x() @ full["", ""].T, atol=1e-6)


def test_rows_sum_to_the_whole():
    full = make_full(RowLinear(12, 8, group=one_rank(), **PLACE))

    def run(group, reduce):
        held = group.mesh.columns(12, "x")
        linear = fill(RowLinear(12, 8, group=group, reduce=reduce, **PLACE), full)
        return linear(make_x()[:, held.start : held.stop])

    whole = make_x() @ full["", ""].T
    for result in run_ranks(3, lambda group: run(group, True)):
        assert torch.allclose(result, whole, atol=1e-6)
    partial = run_ranks(3, lambda group: run(group, False))
    assert not torch.allclose(partial[0], whole, atol=1e-2)
    assert torch.allclose(sum(partial), whole, atol=1e-6)


def test_merged_projections_come_in_order():
    pieces = (HeldRows("a", range(2, 4)), HeldRows("b", range(1)), HeldRows("c", range(5, 8)))
    linear = MergedColumnLinear(12, pieces, **PLACE)
    assert linear.sizes == (2, 1, 3)
    generator = torch.Generator().manual_seed(1)
    full = {("", name): torch.randn(8, 12, generator=generator) for name in "abc"}
    expected = torch.cat([full["", "a"][2:4], full["", "b"][:1], full["", "c"][5:8]])
    assert torch.allclose(fill(linear, full)(make_x()), make_x() @ expected.T, atol=1e-6)


def test_an_axis_that_does_not_divide_is_refused():
    with pytest.raises(ConfigError, match="out_features = 7"):
        run_ranks(2, lambda group: ColumnLinear(12, 7, group=group, **PLACE))
    with pytest.raises(ConfigError, match="in_features = 7"):
        run_ranks(2, lambda group: RowLinear(7, 12, group=group, **PLACE))
