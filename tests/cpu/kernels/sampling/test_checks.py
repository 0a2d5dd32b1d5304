"""The check that contracts share."""

from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.sampling.checks import INTEGERS, require


def test_what_fits_passes():
    require("op", "x", torch.zeros(2, 3), (2, 3), torch.float32)
    require("op", "x", torch.zeros(2, 3), (-1, 3), torch.float64, torch.float32)
    require("op", "x", torch.zeros(2, dtype=torch.int32), (-1,), *INTEGERS)
    require("op", "x", torch.zeros(0, 3), (0, -1), torch.float32)


@pytest.mark.parametrize("shape", [(2,), (2, 4), (3, 3), (2, 3, 1), (0, -1)], ids=str)
def test_what_does_not_fit_is_named(shape: tuple[int, ...]):
    with pytest.raises(ShapeError, match=r"op: x is \[2, 3\] float32, allowed is "):
        require("op", "x", torch.zeros(2, 3), shape, torch.float32)


def test_any_axis_is_said_in_words():
    with pytest.raises(ShapeError, match=r"x is \[2\] bool, allowed is \[any\] int32 or int64"):
        require("op", "x", torch.zeros(2, dtype=torch.bool), (-1,), *INTEGERS)
