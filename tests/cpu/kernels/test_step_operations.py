"""The rules that every operation of sampling, draft and step keeps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import slipstream.kernels
from slipstream.kernels.axes import AXES
from slipstream.kernels.select import select
from support.kernel_cases import as_tuple, cases_of, contract_of, inputs_of, with_checked_axes
from support.no_host_read import READS, HostRead, NoHostRead

ROOM = Path(slipstream.kernels.__file__).parent
OPERATIONS = sorted(
    str(file.parent.relative_to(ROOM))
    for family in ("sampling", "draft", "step")
    for file in (ROOM / family).glob("*/contract.py")
)
STEP_AXES = {
    "vocab_size",
    "query_len",
    "draft_len",
    "max_rows",
    "max_model_len",
    "num_sequences",
    "sequence_len",
    "num_words",
}


def test_the_rooms_hold_the_operations_that_are_tested():
    assert OPERATIONS == [
        "draft/ngram_match",
        "draft/place_rows",
        "sampling/bias_logits",
        "sampling/draw_tokens",
        "sampling/filter_logits",
        "sampling/forbid_sequences",
        "sampling/gumbel_noise",
        "sampling/mask_logits",
        "sampling/penalise_logits",
        "sampling/verify_chain",
        "sampling/verify_rejection",
        "step/commit_rows",
        "step/store_drafts",
    ]


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit, where NaN is NaN."""
    return one.dtype == other.dtype and torch.equal(one.nan_to_num(7e7), other.nan_to_num(7e7))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_cases_are_named_once_and_reproducible(operation: str):
    cases = cases_of(operation)
    assert len({case.name for case in cases}) == len(cases) >= 4
    for case in cases:
        assert len(case.guards) >= 5
        inputs, again = inputs_of(operation, case), inputs_of(operation, case)
        assert inputs.keys() == again.keys()
        for name, value in inputs.items():
            assert same(value, again[name]) if isinstance(value, torch.Tensor) else value == again[name]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_contract_does_what_its_reference_does_with_axes_as_written(operation: str, monkeypatch):
    name = operation.rsplit("/", 1)[-1]
    checked, contract = with_checked_axes(contract_of(operation)), contract_of(operation)
    for case in cases_of(operation):
        inputs, again = inputs_of(operation, case), inputs_of(operation, case)
        results = as_tuple(checked(**inputs))
        with monkeypatch.context() as patched:
            patched.setitem(contract.__globals__, "select", lambda *place: select(*place, "reference"))
            expected = as_tuple(contract(**again))
        for one, other in zip(results, expected, strict=True):
            assert type(one) is type(other)
            if isinstance(one, torch.Tensor):
                assert same(one, other), name
        for key, value in inputs.items():
            assert not isinstance(value, torch.Tensor) or same(value, again[key]), key


@pytest.mark.parametrize("operation", OPERATIONS)
def test_axes_have_one_spelling(operation: str):
    text = (ROOM / operation / "contract.py").read_text(encoding="utf-8")
    annotated = re.findall(r'(?:Bool|Float32|Int|Int32|Int64)\[Tensor, "([^"]+)"\]', text)
    assert annotated
    assert {axis for axes in annotated for axis in axes.split()} <= {*AXES, *STEP_AXES}


class NoHostReadAnywhere(NoHostRead):
    """References of these operations are no exception: they are what a captured step must do."""

    @staticmethod
    def _is_allowed() -> bool:
        return False


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_value_is_read_on_the_host(operation: str, monkeypatch):
    contract = contract_of(operation)
    monkeypatch.setitem(contract.__globals__, "select", lambda *place: select(*place, "reference"))
    for case in cases_of(operation):
        inputs = inputs_of(operation, case)
        with NoHostReadAnywhere():
            contract(**inputs)


def test_the_double_would_notice():
    assert {"item", "nonzero", "tolist", "__bool__"} <= READS
    x = torch.arange(3)
    for read in (lambda: x.max().item(), lambda: bool(x[0] > 0), lambda: x[x > 1], lambda: x.nonzero()):
        with NoHostReadAnywhere(), pytest.raises(HostRead):
            read()
