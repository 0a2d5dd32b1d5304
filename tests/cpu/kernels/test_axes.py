from __future__ import annotations

import re

import pytest
import torch

from slipstream.kernels.axes import AXES
from support.kernel_cases import OPERATIONS, ROOM, inputs_of, reference_of, with_checked_axes


@pytest.mark.parametrize("operation", OPERATIONS)
def test_axes_have_one_spelling(operation):
    known = {*AXES, *(f"twice_{axis}" for axis in AXES), "num_index_pages"}
    for file in ("contract.py", "reference.py"):
        text = (ROOM / operation / file).read_text(encoding="utf-8")
        annotated = re.findall(r'(?:Float|Float32|Int|Int32|Int64)\[Tensor, "([^"]+)"\]', text)
        assert annotated
        assert {axis for axes in annotated for axis in axes.split()} <= known


def test_every_axis_is_explained():
    assert all(name.isidentifier() and len(meaning) > 10 for name, meaning in AXES.items())


def test_a_wrong_axis_is_caught_where_axes_are_checked():
    inputs = inputs_of("norm/rms_norm", "plain")
    checked = with_checked_axes(reference_of("norm/rms_norm"))
    checked(**inputs)
    with pytest.raises(Exception, match="rms_norm"):
        checked(**{**inputs, "weight": torch.zeros(1, 48)})
