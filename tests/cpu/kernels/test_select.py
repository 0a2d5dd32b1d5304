"""Choosing implementations, and the rules that every operation of these rooms keeps."""

from __future__ import annotations

import re

import pytest
import torch

from slipstream.base.errors import KernelError
from slipstream.kernels import select as select_module
from slipstream.kernels.registry import IMPLEMENTATIONS, Implementation
from slipstream.kernels.select import load, select
from support import mutants, oracles
from support.kernel_cases import OPERATIONS, ROOM, cases_of, inputs_of, reference_of, short_name


def test_the_reference_is_selected_once_per_device():
    kernel = select("norm/rms_norm", "cpu")
    assert (kernel.operation, kernel.implementation) == ("norm/rms_norm", "reference")
    assert kernel.function is reference_of("norm/rms_norm")
    assert select("norm/rms_norm", "cpu") is kernel


def test_unknown_names_are_refused_with_what_there_is():
    with pytest.raises(KernelError, match="operation 'norm/absent' has no implementation 'reference'"):
        select("norm/absent", "cpu")
    with pytest.raises(KernelError, match="no implementation 'fast' of 'norm/rms_norm' for device 'cpu'; offered: ref"):
        select("norm/rms_norm", "cpu", "fast")
    with pytest.raises(KernelError, match="offered: none"):
        select("norm/rms_norm", "abacus")


def test_a_module_without_the_operation_is_refused():
    with pytest.raises(KernelError, match=r"must define rms_norm\(\)"):
        load("norm/rms_norm", "cases")


def test_a_missing_library_is_not_a_missing_implementation(monkeypatch):
    def fail(name):
        raise ModuleNotFoundError("No module named 'absent_library'", name="absent_library")

    monkeypatch.setattr(select_module.importlib, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="absent_library"):
        load.__wrapped__("norm/rms_norm", "reference")


def test_the_highest_priority_that_fits_is_taken(monkeypatch):
    """A rule that names its operations wins there, on its devices, and nowhere else."""
    fast = Implementation("cases", 99, frozenset({"cpu"}), frozenset({"moe/route"}))
    monkeypatch.setattr(select_module, "IMPLEMENTATIONS", (*IMPLEMENTATIONS, fast))
    monkeypatch.setattr(select_module, "load", lambda operation, implementation: (operation, implementation))
    pick = select.__wrapped__
    assert pick("moe/route", "cpu") == ("moe/route", "cases")
    assert pick("moe/route", "cpu", "reference") == ("moe/route", "reference")
    assert pick("moe/route", "cuda") == ("moe/route", "triton_impl")
    assert pick("moe/experts", "cpu") == ("moe/experts", "reference")


def test_the_rooms_hold_the_operations_that_are_tested():
    assert len(OPERATIONS) == 18


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_has_contract_reference_cases_oracle_and_mutants(operation):
    folder = ROOM / operation
    assert {"__init__.py", "contract.py", "reference.py", "cases.py"} <= {f.name for f in folder.iterdir()}
    name = short_name(operation)
    assert callable(getattr(oracles, name))
    # A joined operation has the mutants of its parts, and packed experts have those of experts, on unpacked weights.
    assert callable(getattr(mutants, {"choose_blocks": "select_blocks", "experts_nvfp4": "experts"}.get(name, name)))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_cases_are_named_once_and_say_why(operation):
    cases = cases_of(operation)
    assert len({case.name for case in cases}) == len(cases) >= 2
    for case in cases:
        assert len(case.guards) > 15
        assert len(case.tolerance.reason) > 15
        inputs, again = inputs_of(operation, case), inputs_of(operation, case)
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                same = again[name]
                if value.is_floating_point():
                    # Wide first: torch has few operations for float8.
                    value, same = value.float().nan_to_num(), same.float().nan_to_num()
                assert torch.equal(value, same), "cases are reproducible"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_contract_and_reference_have_the_same_annotations(operation):
    texts = [(ROOM / operation / file).read_text(encoding="utf-8") for file in ("contract.py", "reference.py")]
    signatures = [re.search(rf"def {short_name(operation)}\((.*?)\) -> (.*?):\n", text, re.DOTALL) for text in texts]
    cleaned = [re.sub(r"\s|= None|,(?=\))", "", match[1]).rstrip(",") + match[2] for match in signatures if match]
    assert cleaned[0] == cleaned[1]
