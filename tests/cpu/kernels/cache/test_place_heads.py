from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.cache.place_heads.contract import HeadCounts, place_heads
from slipstream.kernels.case import case_named
from support import mutants
from support.kernel_cases import cases_of, expected_of, inputs_of, reference_of, with_checked_axes

OPERATION = "cache/place_heads"
FAULTS = [
    ("no_part", "one_split"),
    ("norm_before_rounding", "bf16"),
    ("index_key_first", "sparse"),
    ("norm_of_index_is_norm_of_q", "sparse"),
    ("values_normed", "dense"),
    ("index_slots_for_keys", "sparse"),
    ("not_saturated", "float8"),
]


def everything(function, inputs):
    """Return the results, and after them every pool."""
    pools = (inputs["k_pages"], inputs["v_pages"], inputs["index_k_pages"])
    return (*function(*inputs.values()), *(pool for pool in pools if pool is not None))


def is_right(case_name, function):
    case = case_named(cases_of(OPERATION), case_name)
    expected = expected_of(OPERATION, inputs_of(OPERATION, case))
    found = everything(function, inputs_of(OPERATION, case))
    assert len(found) == len(expected)
    return all(case.tolerance.accepts(got, want) for got, want in zip(found, expected, strict=True))


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    assert is_right(case.name, with_checked_axes(place_heads)), case.guards
    assert is_right(case.name, with_checked_axes(reference_of(OPERATION))), case.guards


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    assert is_right(case_name, mutants.place_heads)
    assert not is_right(case_name, partial(mutants.place_heads, fault=fault))


@pytest.mark.parametrize("counts", [HeadCounts(8, 1, 1), HeadCounts(4, 2, 0)])
def test_counts_add_up(counts):
    assert counts.total == counts.num_normed + counts.num_kv_heads
    assert counts.num_index_keys == min(counts.num_index_heads, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm_weight": torch.zeros(2, 16)}, "norm_weight is"),
        ({"parts": torch.zeros(1, 5, 160)}, "parts is"),
        ({"parts": torch.zeros(0, 5, 176)}, "parts is"),
        ({"rope_table": torch.zeros(64, 18)}, "rope_table is"),
        ({"positions": torch.zeros(4, dtype=torch.int64)}, "positions is"),
        ({"slot_mapping": torch.zeros(5, dtype=torch.int32)}, "slot_mapping is"),
        ({"k_pages": torch.zeros(4, 4, 1, 16)}, "k_pages is"),
        ({"v_pages": torch.zeros(3, 4, 2, 16)}, "v_pages is"),
        ({"index_k_pages": None}, "index_k_pages is"),
        ({"index_k_pages": torch.zeros(4, 4, 8)}, "index_k_pages is"),
        ({"index_slot_mapping": None}, "index_slot_mapping is"),
    ],
)
def test_axes_and_dtypes_must_agree(change, message):
    given = inputs_of(OPERATION, "sparse")
    given["parts"] = given["parts"][:, :, : given["counts"].total * 16]
    with pytest.raises(ShapeError, match=message):
        place_heads(**{**given, **change})


def test_a_dense_projection_takes_no_index_pages():
    given = inputs_of(OPERATION, "dense")
    with pytest.raises(ShapeError, match="no index heads"):
        place_heads(**{**given, "index_k_pages": torch.zeros(4, 4, 16)})
