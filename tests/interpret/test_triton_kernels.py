"""Every Triton kernel on every named case of its operation, interpreted on the CPU."""

from __future__ import annotations

import pytest

import slipstream.kernels
from support.kernel_cases import ROOM
from support.triton_cases import OPERATIONS, PAIRS, check_triton_case


def test_every_implementation_is_registered_and_every_registered_one_exists():
    found = {file.parent.relative_to(ROOM).as_posix() for file in ROOM.glob("*/*/triton_impl.py")}
    assert found == set(OPERATIONS)
    assert slipstream.kernels.__file__ is not None


@pytest.mark.parametrize(("operation", "case_name"), PAIRS)
def test_case_is_within_its_tolerance(operation, case_name):
    check_triton_case(operation, case_name, "cpu")
