from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.cache.write_kv.contract import write_kv
from slipstream.kernels.case import case_named
from support import mutants
from support.kernel_cases import cases_of, expected_of, inputs_of, reference_of, with_checked_axes

OPERATION = "cache/write_kv"
FAULTS = [
    ("transposed", "scattered"),
    ("wraps", "skipped"),
    ("wraps", "all_skipped"),
    ("null_page", "skipped"),
    ("key_slots_for_index", "indexed"),
    ("copied_pool", "interleaved"),
    ("overflows", "float8"),
    ("overflows", "float8_infinite"),
    ("multiplied", "float8"),
    ("scales_swapped", "float8"),
]


def pages_after(function, inputs):
    """Run a write in place and return every pool that it may have touched."""
    function(**inputs)
    names = ("k_pages", "v_pages") + (("index_k_pages",) if inputs.get("index_k") is not None else ())
    return tuple(inputs[name] for name in names)


def is_right(case_name, function):
    case = case_named(cases_of(OPERATION), case_name)
    expected = expected_of(OPERATION, inputs_of(OPERATION, case))
    after = pages_after(function, inputs_of(OPERATION, case))
    assert len(after) == len(expected)
    return all(case.tolerance.accepts(got, want) for got, want in zip(after, expected, strict=True))


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    assert is_right(case.name, with_checked_axes(write_kv)), case.guards


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_reference_has_the_contract_s_axes(case):
    reference = with_checked_axes(reference_of(OPERATION))
    names = ("index_k", "index_k_pages", "index_slot_mapping")
    assert is_right(case.name, lambda **inputs: reference(**{**dict.fromkeys(names), **inputs}))


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    """Slot -1 must not wrap to the last slot: C22 of the public faults."""
    assert is_right(case_name, mutants.write_kv)
    assert not is_right(case_name, partial(mutants.write_kv, fault=fault))


def test_padding_writes_nothing_at_all():
    """Not to the last slot, not to the null page, nowhere: C25 and S25 of the public faults."""
    inputs = inputs_of(OPERATION, "all_skipped")
    before = [inputs[name].clone() for name in ("k_pages", "v_pages")]
    after = pages_after(write_kv, inputs)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_empty_batch_writes_nothing():
    inputs = inputs_of(OPERATION, "scattered")
    before = inputs["k_pages"].clone()
    for name in ("k", "v", "slot_mapping"):
        inputs[name] = inputs[name][:0]
    write_kv(**inputs)
    assert torch.equal(inputs["k_pages"], before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v": torch.zeros(5, 2, 4)}, r"v is \[5, 2, 4\]"),
        ({"k_pages": torch.zeros(4, 4, 1, 3)}, r"k_pages is \[4, 4, 1, 3\]"),
        ({"v_pages": torch.zeros(3, 4, 2, 3)}, "both alike"),
        ({"slot_mapping": torch.zeros(5, dtype=torch.int32)}, r"slot_mapping is \[5\] int32"),
        ({"index_k_pages": None}, "index_k is .* together with index_k_pages"),
        ({"index_k_pages": torch.zeros(5, 4, 7)}, r"index_k_pages is \[5, 4, 7\]"),
        ({"index_slot_mapping": torch.zeros(4, dtype=torch.int64)}, r"index_slot_mapping is \[4\]"),
    ],
)
def test_disagreements_are_refused(changes, message):
    with pytest.raises(ShapeError, match=message):
        write_kv(**{**inputs_of(OPERATION, "indexed"), **changes})


def test_float8_pages_hold_what_is_nearest_and_keep_nan():
    pages = torch.zeros(2, 4, 1, 4, dtype=torch.float8_e4m3fn)
    values = pages.clone()
    k = torch.tensor([1.0, 1e9, float("-inf"), float("nan")]).view(1, 1, 4)
    write_kv(k, k * 2, pages, values, torch.tensor([5]), k_scale=0.5, v_scale=0.25)
    assert pages[1, 1, 0, :3].tolist() == [2.0, 448.0, -448.0]
    assert values[1, 1, 0, :3].tolist() == [8.0, 448.0, -448.0]
    assert pages[1, 1, 0].isnan().tolist() == values[1, 1, 0].isnan().tolist() == [False, False, False, True]
    assert not pages[0].float().any()
