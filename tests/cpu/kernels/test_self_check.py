from __future__ import annotations

import pytest
import torch

from slipstream.kernels.case import EXACT, Tolerance
from slipstream.kernels.registry import IMPLEMENTATIONS, Kernel
from slipstream.kernels.select import load
from slipstream.kernels.self_check import agrees, cases_of, check_kernels, faster_operations

NORM = "norm/rms_norm"
WRITE = "cache/write_kv"
DRAW = "sampling/draw_tokens"
OPERATIONS = (NORM, WRITE, DRAW)


def table(**functions):
    """A device's implementations: the references, and others in the place of some."""

    def choose(operation, device_type):
        assert device_type == "cpu"
        function = functions.get(operation.rsplit("/", 1)[-1]) or load(operation, "reference").function
        return Kernel(operation, "fake", function)

    return choose


def reference_with(operation, change):
    sound = load(operation, "reference").function
    return lambda *arguments: change(sound(*arguments))


def test_sound_kernels_pass_with_all_their_cases():
    found = check_kernels("cpu", OPERATIONS, choose=table())
    assert found.faults == ()
    assert found.num_operations == 3
    assert found.num_cases > 10


@pytest.mark.parametrize("count", [1, 2, 4, 99])
def test_a_few_cases_are_spread_over_all_of_them(count):
    seen = []

    def noting(operation, device_type):
        return Kernel(
            operation, "fake", lambda *arguments: seen.append(len(seen)) or load(NORM, "reference").function(*arguments)
        )

    found = check_kernels("cpu", [NORM], choose=noting, max_cases=count)
    assert found.num_cases == len(seen) == min(count, len(cases_of(NORM)))


@pytest.mark.parametrize("change", [lambda x: x * 1.01, lambda x: x[:1], lambda x: x * float("nan")])
def test_a_result_that_is_off_is_named_with_its_case(change):
    found = check_kernels("cpu", OPERATIONS, choose=table(rms_norm=reference_with(NORM, change)))
    [fault] = found.faults
    assert fault.startswith(f"{NORM} (fake), case ")
    assert "guards against: " in fault


def test_a_result_that_decides_tokens_is_compared_bit_for_bit():
    found = check_kernels("cpu", [DRAW], choose=table(draw_tokens=reference_with(DRAW, lambda ids: ids + 1)))
    assert len(found.faults) == 1


def test_what_is_written_in_place_is_compared():
    found = check_kernels("cpu", [WRITE], choose=table(write_kv=lambda *arguments: None))
    assert len(found.faults) == 1


def test_a_missing_result_is_a_fault():
    found = check_kernels("cpu", [NORM], choose=table(rms_norm=lambda *arguments: None))
    assert "only one of kernel and reference" in found.faults[0]
    found = check_kernels("cpu", [NORM], choose=table(rms_norm=lambda *arguments: (arguments[0],) * 2))
    assert "2 results, the reference has 1" in found.faults[0]


def test_a_kernel_that_does_not_start_ends_its_operation_alone():
    def broken(*arguments):
        raise RuntimeError("no such architecture")

    found = check_kernels("cpu", OPERATIONS, choose=table(rms_norm=broken))
    assert found.faults == (f"{NORM}: RuntimeError: no such architecture",)
    assert found.num_cases > 5


def test_a_device_s_operations_come_from_the_registry():
    triton = next(rule for rule in IMPLEMENTATIONS if rule.name == "triton_impl")
    assert set(faster_operations("cuda")) == triton.operations
    assert check_kernels("cpu").num_operations == len(faster_operations("cpu")) > 0
    assert check_kernels("cpu").faults == ()


def test_agreement_knows_nan_infinity_and_the_tolerance_of_both_sides():
    values = torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])
    near = Tolerance(0.0, 1e-3, "")
    assert agrees(values, values.clone(), None)
    assert agrees(values, values.clone(), EXACT)
    off = values.clone()
    off[0] = 1.0019
    assert agrees(off, values, near)
    assert not agrees(off, values, EXACT)
    off[0] = 1.003
    assert not agrees(off, values, near)
    assert not agrees(values.nan_to_num(5.0), values, near)
    assert not agrees(values.double(), values, near)
    assert not agrees(torch.tensor([1]), torch.tensor([2]), Tolerance(5.0, 5.0, ""))
