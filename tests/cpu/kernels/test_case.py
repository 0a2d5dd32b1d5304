from __future__ import annotations

import pytest
import torch

from slipstream.kernels.case import EXACT, Case, Tolerance, case_named

CASE = Case("one", "a fault", 7, torch.float32, EXACT, {"num_tokens": 3, "seq_lens": (1, 2)})


@pytest.mark.parametrize(
    ("actual", "expected", "is_accepted"),
    [
        ([1.0, 2.0], [1.05, 2.0], True),
        ([1.0, 2.0], [1.3, 2.0], False),
        ([1.0, 20.0], [1.0, 22.0], True),
        ([float("-inf"), 0.0], [float("-inf"), 0.0], True),
        ([float("-inf"), 0.0], [-1e30, 0.0], False),
        ([float("nan"), 0.0], [float("nan"), 0.0], False),
        ([1.0, 2.0, 3.0], [1.0, 2.0], False),
    ],
)
def test_tolerance(actual, expected, is_accepted):
    tolerance = Tolerance(0.1, 0.1, "for this test")
    assert tolerance.accepts(torch.tensor(actual), torch.tensor(expected).double()) is is_accepted


def test_exact_compares_integers():
    assert EXACT.accepts(torch.tensor([2**31 - 1, -1]), torch.tensor([2**31 - 1, -1], dtype=torch.int32))
    assert not EXACT.accepts(torch.tensor([1]), torch.tensor([2]))


def test_sizes_are_read_by_kind():
    assert CASE.size("num_tokens") == 3
    assert CASE.size("absent", 5) == 5
    assert CASE.sequence("seq_lens") == (1, 2)
    with pytest.raises(KeyError):
        CASE.size("absent")
    with pytest.raises(AssertionError, match="not one number"):
        CASE.size("seq_lens")
    with pytest.raises(AssertionError, match="not a tuple"):
        CASE.sequence("num_tokens")


def test_generators_start_over():
    assert torch.equal(torch.randn(4, generator=CASE.generator()), torch.randn(4, generator=CASE.generator()))


def test_cases_are_found_by_name():
    assert case_named((CASE,), "one") is CASE
    with pytest.raises(KeyError, match="two"):
        case_named((CASE,), "two")
