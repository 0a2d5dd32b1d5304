"""Every Triton kernel on every named case of its operation, interpreted on the CPU."""

from __future__ import annotations

import pytest
import torch

import slipstream.kernels
from support.kernel_cases import ROOM
from support.triton_cases import (
    OPERATIONS,
    PAIRS,
    arguments_of,
    check_triton_case,
    comparable,
    run_triton,
    with_strides,
)


def test_every_implementation_is_registered_and_every_registered_one_exists():
    found = {file.parent.relative_to(ROOM).as_posix() for file in ROOM.glob("*/*/triton_impl.py")}
    assert found == set(OPERATIONS)
    assert slipstream.kernels.__file__ is not None


@pytest.mark.parametrize(("operation", "case_name"), PAIRS)
def test_case_is_within_its_tolerance(operation, case_name):
    check_triton_case(operation, case_name, "cpu")


@pytest.mark.parametrize("stride", [2, 0])
@pytest.mark.parametrize(("operation", "case_name"), PAIRS)
def test_views_are_read_as_the_values_they_stand_for(operation, case_name, stride):
    """The parameters of a single request, repeated for its ladder, are one value in memory: reading on finds others."""
    plain = run_triton(operation, arguments_of(operation, case_name, "cpu"))
    strided = run_triton(operation, with_strides(arguments_of(operation, case_name, "cpu"), stride))
    for one, other in zip(plain, strided, strict=True):
        assert one is other is None or torch.equal(comparable(one), comparable(other))


def test_the_strided_views_are_what_they_claim():
    given = {"seed": torch.tensor([5, 5]), "rows": torch.arange(3), "x": torch.ones(2, 2)}
    wide = with_strides(given, 2)
    assert [wide[name].stride() for name in given] == [(2,), (2,), (2, 1)]
    single = with_strides(given, 0)
    assert [single[name].stride() for name in given] == [(0,), (1,), (2, 1)]
    for views in (wide, single):
        assert all(torch.equal(views[name], given[name]) for name in given)
