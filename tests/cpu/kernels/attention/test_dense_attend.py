from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import KernelError, ShapeError
from slipstream.kernels.attention.dense_attend.contract import dense_attend
from support import mutants, oracles
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of
from support.paged_world import make_world, padded, tokens_of, with_identity_pages, with_shuffled_pages

OPERATION = "attention/dense_attend"
FAULTS = [
    ("no_k_scale", "float8"),
    ("no_v_scale", "float8"),
    ("masked_by_score_only", "mixed"),
    ("own_key_lost", "page_edges"),
    ("strided_groups", "mixed"),
    ("no_scale", "mixed"),
    ("rounded_probabilities", "bf16"),
    ("first_ignored", "first_visible"),
    ("first_by_page", "late_first"),
    ("nothing_is_nan", "padding_between"),
    ("padding_sees_0", "mixed"),
]
SEQ_LENS, QUERY_LENS = (23, 1, 40, 17), (1, 1, 7, 3)


def attend(world, first_visible=0):
    names = ("q", "k_pages", "v_pages", "page_table", "req_of_token", "positions")
    return dense_attend(*[world[name] for name in names], first_visible)


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    """`masked_by_score_only` lets NaN of unwritten slots through a probability of zero."""
    check_mutant(OPERATION, case_name, partial(mutants.dense_attend, fault=fault), mutants.dense_attend)


@pytest.mark.parametrize("seed", range(3))
def test_physical_pages_do_not_matter(seed):
    """Permuted, and contiguous: a run of neighbouring pages is read without a copy."""
    world = make_world(SEQ_LENS, QUERY_LENS, seed=seed)
    mixed = attend(world)
    assert torch.equal(attend(with_shuffled_pages(world, seed + 1)), mixed)
    assert torch.allclose(attend(with_identity_pages(world)), mixed, atol=1e-6)


def test_paged_equals_contiguous():
    """Against torch's own attention over plain tensors."""
    world = with_identity_pages(make_world((37,), (37,)))
    keys = world["k_pages"][1:].flatten(0, 1)[:37].transpose(0, 1)
    values = world["v_pages"][1:].flatten(0, 1)[:37].transpose(0, 1)
    expected = torch.nn.functional.scaled_dot_product_attention(
        world["q"].transpose(0, 1), keys, values, is_causal=True, enable_gqa=True
    )
    assert torch.allclose(attend(world), expected.transpose(0, 1), atol=1e-6)


def test_alone_in_a_batch_and_padded_are_the_same():
    world = make_world(SEQ_LENS, QUERY_LENS)
    mixed = attend(world)
    longer = attend(padded(world, 3))
    assert torch.equal(longer[: len(mixed)], mixed)
    assert not longer[len(mixed) :].any()
    for req in range(len(SEQ_LENS)):
        tokens = (world["req_of_token"] == req).nonzero().squeeze(1)
        assert torch.equal(attend(tokens_of(world, tokens)), mixed[tokens])


def test_chunks_equal_the_whole():
    """A prompt in chunks attends to stored keys: S14 and S36 of the public faults."""
    world = make_world((90,), (90,), page_size=8)
    whole = attend(world)
    for size in (7, 8, 33):
        chunks = [attend(tokens_of(world, torch.arange(i, min(i + size, 90)))) for i in range(0, 90, size)]
        assert torch.allclose(torch.cat(chunks), whole, atol=1e-6)


def test_ladder_rows_equal_single_tokens():
    world = make_world((30,), (9,))
    mixed = attend(world)
    for row in range(9):
        assert torch.allclose(attend(tokens_of(world, torch.tensor([row])))[0], mixed[row], atol=1e-6)


def test_a_later_row_of_nan_leaves_no_trace():
    """A ladder's last token has NaN as key and value: rows before it must not notice, its own row must."""
    world = make_world((30,), (4,))
    page, offset = int(world["page_table"][0, 29 // 4]), 29 % 4
    clean = attend(world)
    for pool in ("k_pages", "v_pages"):
        world[pool][page, offset] = float("nan")
    stained = attend(world)
    assert torch.allclose(stained[:3], clean[:3], atol=1e-6)
    assert stained[3].isnan().all()


def test_infinite_values_of_hidden_keys_leave_no_trace():
    world = make_world((12,), (3,))
    page, offset = int(world["page_table"][0, 11 // 4]), 11 % 4
    clean = attend(world)
    world["v_pages"][page, offset] = float("inf")
    assert torch.allclose(attend(world)[:2], clean[:2], atol=1e-6)


def test_constant_values_come_back():
    world = make_world((25,), (5,))
    world["v_pages"] = torch.full_like(world["v_pages"], 3.0)
    assert torch.allclose(attend(world), torch.full_like(world["q"], 3.0), atol=1e-6)


def test_first_visible_hides_what_is_before_it():
    """Junk in slot 0 of a layer that stores rows from position 1 on."""
    world = make_world((9,), (9,))
    expected = oracles.dense_attend(
        *[world[n] for n in ("q", "k_pages", "v_pages", "page_table", "req_of_token", "positions")], 1
    )
    for pool in ("k_pages", "v_pages"):
        world[pool][int(world["page_table"][0, 0]), 0] = float("nan")
    mixed = attend(world, first_visible=1)
    assert not mixed[0].any()
    assert torch.allclose(mixed.double(), expected, atol=1e-6)


def test_the_cache_is_only_read():
    world = with_identity_pages(make_world((10,), (3,)))
    before = {pool: world[pool].clone() for pool in ("k_pages", "v_pages")}
    attend(world)
    for pool, pages in before.items():
        assert torch.equal(world[pool].nan_to_num(nan=7.0), pages.nan_to_num(nan=7.0))


def test_empty_batch():
    assert attend(tokens_of(make_world((5,), (1,)), torch.tensor([], dtype=torch.int64))).shape == (0, 4, 8)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"q": torch.zeros(12, 5, 8)}, ShapeError, r"q is \[12, 5, 8\] float32, allowed is .*a multiple of 2"),
        ({"q": torch.zeros(12, 6, 7)}, ShapeError, r"q is \[12, 6, 7\]"),
        ({"v_pages": torch.zeros(1, 4, 2, 8)}, ShapeError, "v_pages is"),
        ({"req_of_token": torch.zeros(12, dtype=torch.int32)}, ShapeError, "req_of_token is"),
        ({"first_visible": -1}, KernelError, "first_visible is -1"),
    ],
)
def test_disagreements_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        dense_attend(**{**inputs_of(OPERATION, "mixed"), **changes})
