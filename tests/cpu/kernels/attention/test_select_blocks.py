from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.base.errors import KernelError, ShapeError
from slipstream.kernels.attention.select_blocks.contract import select_blocks
from slipstream.kernels.attention.select_blocks.reference import ordering_keys
from support import mutants, oracles
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of

OPERATION = "attention/select_blocks"
FAULTS = [
    ("no_local", "local"),
    ("no_init", "init_and_local"),
    ("forced_outside_budget", "init_and_local"),
    ("forced_outside_budget", "local"),
    ("higher_id_wins", "ties"),
    ("signed_zeros", "signed_zeros"),
    ("finite_constants", "infinities"),
    ("nan_first", "nan"),
    ("future_block", "free"),
    ("descending", "local"),
    ("pads_with_zero", "local"),
]
SPECIAL = st.sampled_from([0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan"), -1e30, 1e30, 3e38, 1e-45])
SCORE = st.one_of(SPECIAL, st.floats(width=32))


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    check_mutant(OPERATION, case_name, partial(mutants.select_blocks, fault=fault), mutants.select_blocks)


@st.composite
def selections(draw):
    page_size, max_pages = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    num_init_blocks, num_local_blocks = draw(st.integers(0, 2)), draw(st.integers(0, 3))
    topk = draw(st.integers(max(1, num_init_blocks + num_local_blocks), 10))
    positions = draw(st.lists(st.integers(-1, max_pages * page_size - 1), min_size=1, max_size=4))
    num_heads = draw(st.integers(1, 3))
    count = len(positions) * num_heads * max_pages
    values = draw(st.lists(SCORE, min_size=count, max_size=count))
    scores = torch.tensor(values).view(len(positions), num_heads, max_pages)
    return scores, torch.tensor(positions), page_size, topk, num_init_blocks, num_local_blocks


@settings(max_examples=150, deadline=None)
@given(selections())
def test_any_selection_follows_the_rules(arguments):
    scores, positions, page_size, topk, num_init_blocks, num_local_blocks = arguments
    chosen = select_blocks(*arguments)
    assert chosen.shape == (*scores.shape[:2], topk)
    assert chosen.dtype == torch.int32
    for token, position in enumerate(positions.tolist()):
        own = position // page_size
        for ids in chosen[token].tolist():
            real = [i for i in ids if i != -1]
            assert ids == sorted(set(real)) + [-1] * (topk - len(real))
            assert len(real) == min(topk, own + 1)
            assert all(0 <= i <= own for i in real)
            assert set(range(max(0, own - num_local_blocks + 1), own + 1)) <= set(real)
            assert set(range(min(num_init_blocks, own + 1))) <= set(real)
    assert torch.equal(chosen, oracles.select_blocks(*arguments))


def test_keys_order_scores_down_and_ids_up():
    scores = torch.tensor([float("-inf"), -1e30, -2.0, -0.0, 0.0, 1e-45, 2.0, float("inf")])
    keys = ordering_keys(scores, torch.zeros(len(scores), dtype=torch.int64))
    assert keys[3] == keys[4]
    assert torch.equal(keys.sort(stable=True).indices, torch.arange(len(scores)))
    assert ordering_keys(torch.tensor([float("nan")]), torch.tensor([0])) == keys[1]
    same = ordering_keys(torch.zeros(3), torch.tensor([5, 6, 2**24 - 2]))
    assert same[0] > same[1] > same[2]
    # The id never outweighs the score, not even the smallest step of it.
    step = ordering_keys(torch.tensor([0.0, 1e-45]), torch.tensor([0, 2**24 - 2]))
    assert step[1] > step[0]


@pytest.mark.parametrize("pair", [(float("nan"), -1e30), (-1e30, float("nan"))])
def test_nan_ties_with_its_constant_by_id(pair):
    scores = torch.tensor([0.0, *pair, -2e30]).view(1, 1, 4)
    assert select_blocks(scores, torch.tensor([15]), 4, 2, 0, 0)[0, 0].tolist() == [0, 1]


def test_repeated_calls_give_the_same_bits():
    inputs = inputs_of(OPERATION, "ties")
    first = select_blocks(**inputs)
    assert all(torch.equal(select_blocks(**inputs), first) for _ in range(5))


@pytest.mark.parametrize("forced", [(2, 1, 2), (0, 0, 0), (3, -1, 1), (3, 1, -1)])
def test_forced_blocks_must_fit_the_budget(forced):
    topk, num_init_blocks, num_local_blocks = forced
    inputs = inputs_of(OPERATION, "local")
    inputs |= {"topk": topk, "num_init_blocks": num_init_blocks, "num_local_blocks": num_local_blocks}
    with pytest.raises(KernelError, match=f"topk {topk}, num_init_blocks {num_init_blocks}"):
        select_blocks(**inputs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": torch.zeros(9, 2, 9, dtype=torch.float64)}, "scores is .*float64"),
        ({"positions": torch.zeros(8, dtype=torch.int64)}, r"positions is \[8\]"),
    ],
)
def test_disagreements_are_refused(changes, message):
    with pytest.raises(ShapeError, match=message):
        select_blocks(**{**inputs_of(OPERATION, "local"), **changes})
