from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.norm.qk_norm_rope.contract import qk_norm_rope
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of

OPERATION = "norm/qk_norm_rope"
FAULTS = [
    ("forgotten_one", "partial"),
    ("first_kind", "partial"),
    ("all_dimensions", "partial"),
    ("interleaved", "partial"),
    ("interleaved", "whole_head"),
    ("other_direction", "partial"),
    ("bf16_table", "bf16"),
    ("minus_one_wraps", "padding"),
    ("rounded_positions", "far"),
]


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    """Half-split pairs and a partial rotation: F2 of the public faults is the interleaved layout."""
    check_mutant(OPERATION, case_name, partial(mutants.qk_norm_rope, fault=fault), mutants.qk_norm_rope)


def test_without_weights_nothing_is_normalised():
    inputs = inputs_of(OPERATION, "no_norm")
    rotated = qk_norm_rope(**inputs)
    rotary_dim = inputs["rope_table"].shape[1]
    assert torch.equal(rotated[..., rotary_dim:], inputs["x"][..., rotary_dim:])
    # A rotation keeps the length of every head.
    assert torch.allclose(rotated.norm(dim=2), inputs["x"].norm(dim=2), rtol=1e-5)


def test_products_depend_on_the_distance_only():
    """Query at p + d against key at p: the same product for every p."""
    inputs = inputs_of(OPERATION, "whole_head")
    q, k = inputs["x"][:1].expand(5, -1, -1), inputs["x"][1:2].expand(5, -1, -1)
    shared = {name: inputs[name] for name in ("weight", "kind_of_head", "eps", "gemma", "rope_table")}
    keys = torch.tensor([0, 1, 9, 30, 50])
    q = qk_norm_rope(q, positions=keys + 7, **shared)
    k = qk_norm_rope(k, positions=keys, **shared)
    products = (q * k).sum(2)
    assert torch.allclose(products, products[:1].expand(5, -1), atol=1e-4)


def test_result_is_no_view_of_the_projection():
    inputs = inputs_of(OPERATION, "no_norm")
    result = qk_norm_rope(**inputs)
    assert result.untyped_storage().data_ptr() != inputs["x"].untyped_storage().data_ptr()
    assert result.is_contiguous()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": torch.zeros(5, dtype=torch.int64)}, "x is"),
        ({"positions": torch.zeros(6, dtype=torch.int32)}, r"positions is \[6\] int32"),
        ({"rope_table": torch.zeros(64, 18)}, "rope_table is .*<= 16"),
        ({"rope_table": torch.zeros(64, 7)}, "rope_table is"),
        ({"rope_table": torch.zeros(64, 8, dtype=torch.float64)}, "rope_table is .*float64"),
        ({"weight": None}, "given together with kind_of_head"),
        ({"weight": torch.zeros(4, 15)}, r"weight is \[4, 15\]"),
        ({"kind_of_head": torch.zeros(8, dtype=torch.int64)}, r"kind_of_head is \[8\]"),
    ],
)
def test_disagreements_are_refused(changes, message):
    with pytest.raises(ShapeError, match=message):
        qk_norm_rope(**{**inputs_of(OPERATION, "partial"), **changes})
