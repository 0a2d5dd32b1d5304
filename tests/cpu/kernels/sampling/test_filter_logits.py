"""The filters against a one-token-at-a-time oracle, at the edges, and in mixed batches."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.base.errors import ShapeError
from slipstream.kernels.case import case_named
from slipstream.kernels.sampling.filter_logits.cases import CASES, FilterCase, make_inputs
from slipstream.kernels.sampling.filter_logits.contract import filter_logits
from support.filter_mutants import FAULTS, filter_faulty
from support.filter_oracle import kept_tokens


def run(logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    def every(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full((logits.shape[0],), value, dtype=dtype)

    return filter_logits(logits, every(temperature), every(top_k, torch.int32), every(top_p), every(min_p))


def kept(filtered: torch.Tensor, row: int = 0) -> list[int]:
    return torch.nonzero(filtered[row] > -torch.inf)[:, 0].tolist()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_oracle(case: FilterCase):
    given = make_inputs(case)
    logits, filtered = given["logits"], filter_logits(**given)
    for row in range(4):
        if case.fault and row == 1:
            assert torch.equal(filtered[row].nan_to_num(7e7), logits[row].nan_to_num(7e7))
            continue
        wanted = kept_tokens(logits[row].tolist(), case.temperature, case.top_k, case.top_p, case.min_p)
        assert kept(filtered, row) == wanted
        assert torch.equal(filtered[row, wanted], logits[row, wanted])


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(7e7), other.nan_to_num(7e7))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_second_implementation_is_sound(case: FilterCase):
    assert same(filter_faulty(**make_inputs(case)), filter_logits(**make_inputs(case)))


@pytest.mark.parametrize(("fault", "name"), [(fault, name) for fault, names in FAULTS.items() for name in names])
def test_cases_reject_mutants(fault: str, name: str):
    given = make_inputs(case_named(CASES, name))
    assert not same(filter_faulty(**given, fault=fault), filter_logits(**given)), f"{name} is blind to {fault}"


def test_every_case_rejects_some_mutant():
    assert {name for names in FAULTS.values() for name in names} == {case.name for case in CASES}


def test_cases_make_every_filter_bite():
    """A table of cases in which nothing was removed would prove nothing."""
    sizes = {}
    for case in CASES:
        sizes[case.name] = len(kept(filter_logits(**make_inputs(case))))
    assert sizes["off"] == 37
    assert sizes["greedy"] == 37
    assert sizes["top_k_one"] == 1
    assert sizes["top_k_ties"] == 9
    assert sizes["top_p_tiny"] == 1
    assert 1 < sizes["top_p_ties"] < 64
    assert sizes["min_p_one"] > 1
    assert 1 < sizes["all_three"] < 12


@settings(max_examples=150, deadline=None)
@given(
    logits=st.lists(st.integers(-6, 6).map(float) | st.floats(-20, 20, width=32), min_size=1, max_size=24),
    temperature=st.sampled_from([0.01, 0.5, 1.0, 3.0]),
    top_k=st.integers(0, 26),
    top_p=st.sampled_from([1e-30, 0.01, 0.3, 0.5003, 0.9, 0.99, 1.0]),
    min_p=st.sampled_from([0.0, 0.001, 0.0503, 0.7, 1.0]),
)
def test_equals_the_oracle_on_any_row(logits, temperature, top_k, top_p, min_p):
    row = torch.tensor([logits], dtype=torch.float32)
    single = torch.tensor([temperature, top_p, min_p], dtype=torch.float32).tolist()
    scaled = ((row - row.max()) / temperature)[0].tolist()
    # A mass within rounding of a cut may fall on either side of it; the oracle sums in another order.
    if not has_margin(scaled, top_k, single[1], single[2]):
        return
    filtered = run(row, single[0], top_k, single[1], single[2])
    assert kept(filtered) == kept_tokens(row[0].tolist(), single[0], top_k, single[1], single[2])


def has_margin(scaled: list[float], top_k: int, top_p: float, min_p: float) -> bool:
    alive = sorted((math.exp(x) for x in scaled), reverse=True)
    # A logit below the best by less than a rounding step has the best one's probability, and is not the best.
    if any(abs(math.exp(x) - min_p) < 1e-5 for x in scaled if x < 0):
        return False
    alive = [x for x in alive if x >= min_p][: top_k or None]
    mass = 0.0
    for x in alive:
        mass += x
        if top_p < 1 and abs(mass - top_p * sum(alive)) < 1e-5:
            return False
    return True


def test_rows_keep_their_own_parameters():
    logits = torch.randn(5, 61, generator=torch.Generator().manual_seed(0))
    temperature = torch.tensor([0.0, 1.0, 0.5, 2.0, 1.0])
    top_k = torch.tensor([3, 0, 7, 0, 1000], dtype=torch.int32)
    top_p = torch.tensor([0.1, 1.0, 1.0, 0.4, 0.9])
    min_p = torch.tensor([0.9, 0.0, 0.0, 0.0, 0.2])
    batch = filter_logits(logits, temperature, top_k, top_p, min_p)
    for row in range(5):
        one = slice(row, row + 1)
        alone = filter_logits(logits[one], temperature[one], top_k[one], top_p[one], min_p[one])
        assert torch.equal(batch[one], alone)
    assert torch.equal(batch[:2], logits[:2])
    assert len(kept(batch, 2)) == 7


def test_ties_at_the_cut_go_to_the_lower_id():
    logits = torch.tensor([[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]])
    assert kept(run(logits, 1.0, 2, 1.0, 0.0)) == [1, 3]
    assert kept(run(logits, 1.0, 4, 1.0, 0.0)) == [0, 1, 3, 5]
    flat = torch.zeros(1, 8)
    assert kept(run(flat, 1.0, 0, 0.5, 0.0)) == [0, 1, 2, 3]
    assert kept(run(flat, 1.0, 0, 0.51, 0.0)) == [0, 1, 2, 3, 4]


def test_extremes_keep_the_most_likely_token():
    logits = torch.tensor([[-3.0, 80.0, 79.0, 0.0]])
    for top_p in (0.0, 1e-38, 1e-45, 0.5):
        assert kept(run(logits, 1.0, 0, top_p, 0.0)) == [1]
    assert kept(run(logits, 1e-30, 0, 0.999, 0.0)) == [1]
    assert kept(run(logits, 1e-30, 3, 1.0, 0.0)) == [1, 2, 3]
    assert kept(run(logits, 1.0, 0, 1.0, 1.0)) == [1]


def test_excluded_tokens_stay_excluded_and_do_not_count():
    logits = torch.tensor([[5.0, -torch.inf, 4.0, 3.0, -torch.inf]])
    assert kept(run(logits, 1.0, 2, 1.0, 0.0)) == [0, 2]
    assert kept(run(logits, 1.0, 10, 1.0, 0.0)) == [0, 2, 3]
    assert kept(run(logits, 1.0, 0, 1.0, 0.0)) == [0, 2, 3]


@pytest.mark.parametrize("fault", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_a_bad_row_is_contained(fault: float):
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(3))
    good = run(logits, 0.9, 5, 0.8, 0.01)
    broken = logits.clone()
    broken[1] = fault
    filtered = run(broken, 0.9, 5, 0.8, 0.01)
    assert torch.equal(filtered[[0, 2]], good[[0, 2]])
    assert torch.equal(filtered[1].isnan(), broken[1].isnan())


def test_order_of_filters_matters_and_is_min_p_then_top_k_then_top_p():
    """Top-p first would count the mass that top-k removes, and keep fewer of what remains."""
    logits = torch.log(torch.tensor([[0.4, 0.2, 0.2, 0.1, 0.1]]))
    assert kept(run(logits, 1.0, 2, 0.65, 0.0)) == [0]
    assert kept(run(logits, 1.0, 0, 0.65, 0.0)) == [0, 1, 2]
    assert kept(run(logits, 1.0, 2, 0.7, 0.0)) == [0, 1]


def test_wrong_dtype_is_named():
    with pytest.raises(ShapeError, match=r"logits is \[1, 4\] float64, allowed is \[any, any\] float32"):
        run(torch.zeros(1, 4, dtype=torch.float64), 1.0, 0, 1.0, 0.0)
