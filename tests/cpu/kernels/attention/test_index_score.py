from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.attention.index_score.contract import index_score
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of
from support.paged_world import make_world, padded, tokens_of, with_identity_pages, with_shuffled_pages

OPERATION = "attention/index_score"
FAULTS = [
    ("whole_block", "mixed"),
    ("own_key_lost", "page_edges"),
    ("mean", "integers"),
    ("scaled", "integers"),
    ("rounded_products", "bf16_integers"),
    ("nan_is_largest", "nan_query"),
    ("padding_sees_null_page", "padding_only"),
]
SEQ_LENS, QUERY_LENS = (23, 1, 40, 17), (1, 1, 7, 3)


def score(world):
    return index_score(
        world["index_q"],
        world["index_k_pages"],
        world["page_table"],
        world["req_of_token"],
        world["positions"],
    )


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    check_mutant(OPERATION, case_name, partial(mutants.index_score, fault=fault), mutants.index_score)


@pytest.mark.parametrize("seed", range(3))
def test_physical_pages_do_not_matter(seed):
    world = make_world(SEQ_LENS, QUERY_LENS, seed=seed)
    assert torch.equal(score(world), score(with_shuffled_pages(world, seed + 1)))
    assert torch.equal(score(world), score(with_identity_pages(world)))


def test_alone_in_a_batch_and_padded_are_the_same():
    world = make_world(SEQ_LENS, QUERY_LENS)
    scores = score(world)
    assert torch.equal(score(padded(world, 3))[: len(scores)], scores)
    for req in range(len(SEQ_LENS)):
        tokens = (world["req_of_token"] == req).nonzero().squeeze(1)
        assert torch.equal(score(tokens_of(world, tokens)), scores[tokens])


def test_ladder_rows_equal_single_tokens():
    """Each row sees its own position + 1 tokens, whatever the rows after it hold."""
    world = make_world((30,), (9,))
    scores = score(world)
    for row in range(9):
        alone = score(tokens_of(world, torch.tensor([row])))
        assert torch.allclose(alone[0], scores[row], atol=1e-6)


def test_width_is_the_table_s_and_never_a_length():
    """S3 of the public faults: a buffer sized by a host length falls behind the device's lengths."""
    for seq_len in (1, 5, 60):
        assert score(make_world((seq_len,), (1,), max_pages=15)).shape[2] == 15


def test_a_longer_run_is_cut_into_tiles():
    world = make_world((150,), (150,), page_size=16)
    expected = mutants.index_score(
        world["index_q"], world["index_k_pages"], world["page_table"], world["req_of_token"], world["positions"]
    )
    assert torch.allclose(score(world), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"index_q": torch.zeros(12, 2, 15)}, r"index_q is \[12, 2, 15\]"),
        ({"index_page_table": torch.zeros(4, 6, dtype=torch.int64)}, r"page_table is \[4, 6\] int64"),
        ({"req_of_token": torch.zeros(11, dtype=torch.int64)}, r"req_of_token is \[11\]"),
        ({"positions": torch.zeros(12, dtype=torch.int32)}, r"positions is \[12\] int32"),
    ],
)
def test_disagreements_are_refused(changes, message):
    with pytest.raises(ShapeError, match=message):
        index_score(**{**inputs_of(OPERATION, "mixed"), **changes})
